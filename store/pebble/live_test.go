package pebble

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLiveSet_KnowsWhatIsThere compares a live set with a map. What the tree would hold of deleted cells is kept, too:
// cutting out every gap leaves the rows of cells that are there, and nothing that is there.
func TestLiveSet_KnowsWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l liveSet
		model := map[string]int64{}
		held := map[string]int64{} // deleted keys, and their bytes
		for i := range rapid.IntRange(1, 2000).Draw(t, "operations") {
			key := appendKey(nil, 1, []byte{byte(rapid.IntRange(1, 40).Draw(t, "row"))}, 1,
				[]byte{byte(rapid.IntRange(1, 30).Draw(t, "qualifier"))})
			if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
				if _, ok := model[string(key)]; ok {
					held[string(key)] += 100
				}
				l.remove(key)
				delete(model, string(key))
			} else {
				l.put(key, int64(i), 100)
				model[string(key)] = int64(i)
			}
			if rapid.IntRange(0, 99).Draw(t, "reap") == 0 {
				for _, g := range l.gaps(int64(rapid.SampledFrom([]int{1, 300}).Draw(t, "at least"))) {
					if !l.empty(g) {
						t.Fatalf("the gap %x..%x has a cell", g.start, g.end)
					}
					for key := range model {
						if compareKeys(g.start, []byte(key)) <= 0 && compareKeys([]byte(key), g.end) < 0 {
							t.Fatalf("the gap %x..%x has the cell %x", g.start, g.end, key)
						}
					}
					l.cut(g)
				}
			}
		}
		var keys [][]byte
		for _, key := range slices.SortedFunc(maps.Keys(model), func(a, b string) int {
			return compareKeys([]byte(a), []byte(b))
		}) {
			keys = append(keys, []byte(key))
			if got := l.timestamp([]byte(key)); got == nil || *got != model[key] {
				t.Fatalf("timestamp of %x = %v, want %d", key, got, model[key])
			}
		}
		got := l.within(appendPrefix(nil, 0, nil), appendPrefix(nil, maxTable+1, nil))
		if !slices.EqualFunc(got, keys, bytes.Equal) || l.bytes != int64(100*len(keys)) {
			t.Fatalf("%d cells of %d bytes, want %d of 100 each", len(got), l.bytes, len(keys))
		}
		for key := range held {
			if _, ok := model[key]; !ok && l.timestamp([]byte(key)) != nil {
				t.Fatalf("the deleted cell %x is there", key)
			}
		}
	})
}

// TestLiveSet_FindsTheGapsOfWriters deletes behind three writers that put side by side.
func TestLiveSet_FindsTheGapsOfWriters(t *testing.T) {
	var l liveSet
	key := func(writer, n int) []byte {
		return appendKey(nil, 1, []byte{byte(writer), byte(n >> 8), byte(n)}, 1, nil)
	}
	cut := 0
	for n := range 5000 {
		for writer := range 3 {
			l.put(key(writer, n), 1, 100)
			if n >= 1000 {
				l.remove(key(writer, n-1000))
			}
		}
		if n%500 == 499 {
			gaps := l.gaps(1000)
			for writer := range 3 { // which goes on meanwhile
				l.put(key(writer, n), 2, 100)
			}
			for _, g := range gaps {
				if !l.empty(g) {
					t.Fatalf("at %d the gap %x..%x has a cell", n, g.start, g.end)
				}
				cut += int(g.dead)
				l.cut(g)
			}
		}
	}
	if want := 3 * 4000 * 100; cut != want {
		t.Errorf("%d bytes cut out, want %d", cut, want)
	}
	if len(l.gaps(1)) != 0 {
		t.Errorf("gaps are left: %v", l.gaps(1))
	}
}
