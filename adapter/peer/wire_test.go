package peer

import (
	"bufio"
	"bytes"
	"slices"
	"testing"
)

func FuzzParseQuestion(f *testing.F) {
	f.Add([]byte("123456789012\x03abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseQuestion(b)
		if err != nil {
			return
		}
		if !slices.IsSortedFunc(q.tsuids, bytes.Compare) {
			t.Fatalf("%x: TSUIDs %x are not sorted", b, q.tsuids)
		}
		again, err := parseQuestion(q.append(nil))
		if err != nil || len(again.tsuids) != len(q.tsuids) || again.from != q.from || again.to != q.to ||
			again.first != q.first {
			t.Fatalf("%x: got %x after %x, %v", b, again, q, err)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	row := appendRow([]byte{0, 0, 0, 0}, place{1, 3600}, []byte("points"))
	f.Add(append(row, endRows))
	f.Add(place{1, 7200}.append(row, restLeft))
	q := question{from: 3600, to: 7200, first: 3600, tsuids: [][]byte{{1}, {2}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readAnswer(bufio.NewReader(bytes.NewReader(b)), q)
		if err != nil {
			return
		}
		for before := (place{-1, 0}); ; {
			at, points, err := a.row()
			if err != nil {
				return
			}
			if !at.after(before) || len(points) > len(b) {
				t.Fatalf("%x: a row at %v with %d bytes after one at %v", b, at, len(points), before)
			}
			if points == nil {
				if at == (place{0, q.first}) {
					t.Fatalf("%x: asks for all again", b)
				}
				return
			}
			before = at
		}
	})
}
