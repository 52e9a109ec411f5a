package mapping_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

func TestQualifier_HasTheBytesOfOpenTSDB(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset uint32
		flags  byte
		width  int
	}{
		{"0000", 0, 0, 2},
		{"0010", 1000, 0, 2},
		{"002b", 2000, 0xb, 2},
		{"e0ff", 3599000, 0xf, 2},
		{"efff", 3839000, 0xf, 2},
		{"f0000000", 0, 0, 4},
		{"f000004b", 1, 0xb, 4},
		{"fdbb9fc0", 3599999, 0, 4},
		{"f000007b", 1, 0xb, 4}, // reserved bits
		{"ffffffcf", 4194303, 0xf, 4},
	} {
		b, _ := hex.DecodeString(c.text + "0010")
		offset, flags, width, err := mapping.ParseQualifier(b)
		if err != nil || offset != c.offset || flags != c.flags || width != c.width {
			t.Errorf("qualifier %s: got %d, %#x, %d, %v, want %d, %#x, %d",
				c.text, offset, flags, width, err, c.offset, c.flags, c.width)
		}
	}
}

func TestParseQualifier_MissingBytesAreCorrupt(t *testing.T) {
	for _, b := range []string{"", "\x00", "\xf0", "\xf0\x00", "\xf0\x00\x00"} {
		if _, _, _, err := mapping.ParseQualifier([]byte(b)); !errors.Is(err, mapping.ErrCorrupt) {
			t.Errorf("qualifier %x: got %v, want ErrCorrupt", b, err)
		}
	}
}

func TestAppendQualifier_ReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wantOffset := rapid.Uint32Range(0, mapping.HourMs-1).Draw(t, "offset")
		wantFlags := byte(rapid.IntRange(0, 15).Draw(t, "flags"))
		b := mapping.AppendQualifier(nil, wantOffset, wantFlags)
		offset, flags, width, err := mapping.ParseQualifier(b)
		if err != nil || offset != wantOffset || flags != wantFlags || width != len(b) {
			t.Fatalf("got %d, %#x, %d, %v, want %d, %#x, %d", offset, flags, width, err, wantOffset, wantFlags, len(b))
		}
	})
}
