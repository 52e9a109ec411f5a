package peer

import (
	"bufio"
	"bytes"
	"testing"
)

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte("12345678\x03abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tsuids, from, to, err := parseRequest(b); err == nil {
			again, from2, to2, err := parseRequest(appendRequest(nil, tsuids, from, to))
			if err != nil || len(again) != len(tsuids) || from2 != from || to2 != to {
				t.Fatalf("%x: got %x after %x, %v", b, again, tsuids, err)
			}
		}
	})
}

func FuzzReadRow(f *testing.F) {
	f.Add(appendRow(nil, 1, 3600, []byte("points")))
	f.Add([]byte{endRows})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRow(bufio.NewReader(bytes.NewReader(b)), 2)
		if err == nil && (r.i > 1 || len(r.points) > len(b)) {
			t.Fatalf("%x: row %+v", b, r)
		}
	})
}
