package seriescache

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Whatever lists come, and however often the numbers begin anew: two series have one key only if they have the same
// labels.
func TestSymbols_KeysTellSeriesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &symbols{most: rapid.IntRange(1, 8).Draw(t, "most"), numbers: map[string]uint32{}}
		meaning := map[string]string{}
		var numbers []uint32
		longest := 0
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			list := [][]byte{nil}
			for _, text := range rapid.SliceOfN(rapid.StringMatching(`[a-e]{1,2}`), 0, 6).Draw(t, "symbols") {
				list = append(list, []byte(text))
			}
			var epoch uint32
			numbers, epoch = s.number(numbers, list)
			longest = max(longest, len(list))
			if len(numbers) != len(list) || len(s.numbers) > max(s.most, longest) {
				t.Fatalf("%d numbers for %d symbols, %d are kept of at most %d", len(numbers), len(list), len(s.numbers), s.most)
			}
			refs := rapid.SliceOfN(rapid.Uint32Range(0, uint32(len(list)-1)), 2, 5).Draw(t, "references")
			refs = refs[:len(refs)&^1]
			labels := ""
			for _, ref := range refs {
				labels += fmt.Sprintf("%q", list[ref])
			}
			key := string(appendRefsKey([]byte("before"), epoch, numbers, refs))[len("before"):]
			if was, ok := meaning[key]; ok && was != labels {
				t.Fatalf("the key %x means %s, and meant %s", key, labels, was)
			}
			meaning[key] = labels
			for known, was := range meaning {
				if is := isRefsKey([]byte(known), epoch, numbers, refs); is != (known == key) {
					t.Fatalf("whether the key of %s is that of %s: got %t", was, labels, is)
				}
			}
			if isRefsKey([]byte(labels), epoch, numbers, refs) {
				t.Fatalf("%s is taken for a key", labels)
			}
		}
	})
}

func TestSymbols_KnownOnesKeepTheirNumbersAndTakeNoMemory(t *testing.T) {
	s := newSymbols(10)
	var list [][]byte
	for i := range 100 {
		list = append(list, fmt.Append(nil, i))
	}
	numbers, epoch := s.number(nil, list)
	first := fmt.Sprint(numbers, epoch)
	if allocated := testing.AllocsPerRun(10, func() { numbers, epoch = s.number(numbers, list) }); allocated > 0 {
		t.Errorf("%v allocations for symbols that are known, want none", allocated)
	}
	if again := fmt.Sprint(numbers, epoch); again != first {
		t.Errorf("got %s, and %s before", again, first)
	}
}

func TestSymbols_BoundsTheirBytes(t *testing.T) {
	s := newSymbols(0)
	long := make([]byte, leastSymbols*symbolBytes-1)
	s.number(nil, [][]byte{long})
	if _, epoch := s.number(nil, [][]byte{[]byte("ab")}); epoch != 1 || len(s.numbers) != 1 || s.bytes != 2 {
		t.Errorf("epoch %d with %d symbols of %d bytes, want 1 with 1 of 2", epoch, len(s.numbers), s.bytes)
	}
}

func TestSymbols_ServeManyAtOnce(t *testing.T) {
	s := &symbols{most: 20, numbers: map[string]uint32{}}
	var mu sync.Mutex
	meaning := map[[2]uint32]string{}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			var numbers []uint32
			for i := range 500 {
				list := [][]byte{fmt.Append(nil, (i+w)%15), fmt.Append(nil, i%7), fmt.Append(nil, i/100, w)}
				var epoch uint32
				numbers, epoch = s.number(numbers, list)
				mu.Lock()
				for j, n := range numbers {
					at := [2]uint32{epoch, n}
					if was, ok := meaning[at]; ok && was != string(list[j]) {
						t.Errorf("number %v is of %q, and was of %q", at, list[j], was)
					}
					meaning[at] = string(list[j])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
