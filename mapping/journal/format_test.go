package journal_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
)

func TestKeys_TextsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "entry")
		text, ok := journal.FormatEntryKey(entry)
		if got, err := journal.ParseEntryKey(text); !ok || err != nil || !bytes.Equal(got, entry) {
			t.Fatalf("%x as %q: got %x, %v", entry, text, got, err)
		}
		for _, row := range [][]byte{append([]byte("w"), entry[:8]...), append([]byte("q"), entry...)} {
			text, ok := journal.FormatKey(row)
			if got, err := journal.ParseKey(text); !ok || err != nil || !bytes.Equal(got, row) {
				t.Fatalf("%x as %q: got %x, %v", row, text, got, err)
			}
		}
	})
	for _, text := range []string{"", "entry 1", "entry x of 0123456789abcdef", "lease of 12", "quarantined lease of 12"} {
		if _, err := journal.ParseEntryKey(text); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("entry %q: got %v, want ErrInvalid", text, err)
		}
		if _, err := journal.ParseKey(text); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", text, err)
		}
	}
}
