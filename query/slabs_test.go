package query

import (
	"bytes"
	"testing"
)

func TestSlabs_ClonesStayUntilReset(t *testing.T) {
	var s slabs
	sizes := []int{0, 100, slabBytes - 50, 3 * slabBytes, 7, slabBytes, 60, 0}
	first := 0
	for range 3 {
		var want, got [][]byte
		for i, size := range sizes {
			want = append(want, bytes.Repeat([]byte{byte(i + 1)}, size))
			got = append(got, append(s.make(size), want[i]...))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) || cap(got[i]) != len(got[i]) {
				t.Fatalf("clone %d of %d bytes has changed, or room for %d", i, len(want[i]), cap(got[i]))
			}
		}
		if first == 0 {
			first = len(s.all)
		}
		if n := len(s.all); n > first {
			t.Fatalf("%d slabs, want the %d of the first time to be used again", n, first)
		}
		s.reset()
	}
}
