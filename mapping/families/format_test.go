package families_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/families"
)

func TestKey_TextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := append([]byte{'m'}, rapid.SliceOf(rapid.Byte()).Draw(t, "name")...)
		text, ok := families.FormatKey(row)
		if got, err := families.ParseKey(text); !ok || err != nil || !bytes.Equal(got, row) {
			t.Fatalf("%x as %q: got %x, %v", row, text, got, err)
		}
	})
	for _, text := range []string{"", `metadata "up"`, "metadata of up"} {
		if _, err := families.ParseKey(text); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", text, err)
		}
	}
}
