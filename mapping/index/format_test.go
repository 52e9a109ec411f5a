package index_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
)

func TestKeys_TextsReadBack(t *testing.T) {
	schema := mapping.DefaultSchema()
	rapid.Check(t, func(t *rapid.T) {
		day := append([]byte("d"), rapid.SliceOfN(rapid.Byte(), 3, 30).Draw(t, "day and TSUID")...)
		change := append([]byte("n"), rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "writer and number")...)
		for _, row := range [][]byte{day, change} {
			text, ok := index.FormatKey(row, schema.FormatTSUID)
			got, err := index.ParseKey(text, schema.ParseFormattedTSUID)
			if !ok || err != nil || !bytes.Equal(got, row) {
				t.Fatalf("%x as %q: got %x, %v", row, text, got, err)
			}
		}
	})
	for _, text := range []string{"", "active on 1969-12-31: metric 000001", "active on today", "change 1 of the index, by 12"} {
		if _, err := index.ParseKey(text, schema.ParseFormattedTSUID); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", text, err)
		}
	}
}
