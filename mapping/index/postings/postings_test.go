package postings_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
)

// What a series takes of memory is what the README says and cmd/promtsd reckons with.
func TestSet_Memory(t *testing.T) {
	const (
		series = 200_000
		most   = 200
	)
	schema := mapping.DefaultSchema()
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for name, values := range map[string][]int{ // how many values each label has; 0: each series has one of its own
		"of ten labels":                        {1, 3, 5, 20, 50, 200, 1000, 5000, 5000},
		"one of whose labels is its own":       {1, 3, 5, 20, 50, 200, 1000, 5000, 0},
		"with two labels, one of them its own": {5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var buf []byte
			before := heap()
			set := postings.New(schema)
			for i := range series {
				var tags []mapping.Tag
				rest := i
				for label, n := range slices.Backward(values) {
					if n == 0 {
						n = series
					}
					tags = append(tags, mapping.Tag{Key: mapping.UID(label + 1), Value: mapping.UID(label*1_000_000 + rest%n + 1)})
					rest = max(rest/n, rest%7) // so that the others vary, too
				}
				slices.Reverse(tags)
				buf = schema.AppendTSUID(buf[:0], mapping.UID(i%500+1), tags)
				if !set.Add(buf, 20_000, series) {
					t.Fatal("there is no room")
				}
			}
			each := (heap() - before) / series
			t.Logf("%.0f bytes", each)
			if each > most {
				t.Errorf("a series takes %.0f bytes, want %d at most", each, most)
			}
			runtime.KeepAlive(set)
		})
	}
}
