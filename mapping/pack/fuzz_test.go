package pack_test

import (
	"errors"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/pack"
)

// maxExpanded is the number of bytes that the largest cell has.
const maxExpanded = 4096*12 + 1

func FuzzExpand(f *testing.F) {
	for i, s := range makeSeries(parts * targets) {
		if i%113 == 0 {
			c := s.cell(30)
			packed, _ := pack.Append(nil, c.qualifier, c.value)
			f.Add(packed)
		}
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		out, n, err := pack.Expand(nil, packed)
		if err != nil {
			if !errors.Is(err, mapping.ErrCorrupt) || len(out) > 0 {
				t.Fatalf("got %x, error %v, want an error that is ErrCorrupt", out, err)
			}
			return
		}
		if len(out) > maxExpanded || n > len(out) {
			t.Fatalf("got %d bytes, %d of them qualifier, want at most %d", len(out), n, maxExpanded)
		}
		checkAppend(t, cell{qualifier: out[:n], value: out[n:]})
	})
}

func FuzzAppend(f *testing.F) {
	for i, s := range makeSeries(parts * targets) {
		if i%113 == 0 {
			c := s.cell(30)
			f.Add(c.qualifier, c.value)
		}
	}
	f.Add([]byte{0, 0, 0, 0x10}, []byte{1, 2})
	f.Fuzz(func(t *testing.T, qualifier, value []byte) {
		checkAppend(t, cell{qualifier: qualifier, value: value})
	})
}
