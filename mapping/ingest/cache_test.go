package ingest

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func newSeries(tsuid string) *series { return &series{lot: new(lot), tsuid: tsuid} }

// hashTo makes hashes that fall into one shard.
func hashTo(shard, n uint64) uint64 { return shard<<58 | n }

func TestCache_SeriesWithOneHashAreNotMixed(t *testing.T) {
	c := newCache(64 * 10)
	const hash = 42
	var all []*series
	for i := range 10 {
		s := newSeries(string([]byte{byte(i)}))
		raw := fmt.Sprintf("series %d", i)
		if c.get(hash, []byte(raw)) != nil {
			t.Fatalf("%s is held before it was added", raw)
		}
		if got := c.add(hash, []byte(raw), s); got != s {
			t.Fatalf("%s: add returned another series", raw)
		}
		if got := c.add(hash, []byte(raw), newSeries("")); got != s {
			t.Fatalf("%s: a second add did not return the first one's series", raw)
		}
		all = append(all, s)
	}
	for i, want := range all {
		if got := c.get(hash, fmt.Appendf(nil, "series %d", i)); got != want {
			t.Errorf("series %d: got series %v", i, got)
		}
	}
	// Dropping the first, a middle and the last of the chain leaves the others.
	s := c.shardOf(hash)
	for _, dropped := range []int{0, 9, 5, 8} {
		s.remove(entryOf(s, hash, all[dropped]))
		all[dropped] = nil
		for i, want := range all {
			if got := c.get(hash, fmt.Appendf(nil, "series %d", i)); got != want {
				t.Errorf("without series %d: got %v for series %d, want %v", dropped, got, i, want)
			}
		}
	}
}

func entryOf(s *shard, hash uint64, of *series) *entry {
	e := s.entries[hash]
	for e.series != of {
		e = e.next
	}
	return e
}

// A cache of any history holds no more than its bound, and never the wrong series.
func TestCache_HoldsTheLatestUpToItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		c := newCache(64 * limit)
		names := map[*series]string{}
		hashes := rapid.SampledFrom([]uint64{hashTo(3, 0), hashTo(3, 1), hashTo(3, 2)})
		for range rapid.IntRange(0, 100).Draw(t, "calls") {
			hash := hashes.Draw(t, "hash")
			raw := fmt.Sprintf("%d %s", hash, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "raw"))
			s := c.get(hash, []byte(raw))
			if s == nil {
				s = newSeries(raw)
				names[s] = raw
				if got := c.add(hash, []byte(raw), s); got != s {
					t.Fatalf("add of %s, which is not held, returned the series of %s", raw, names[got])
				}
			}
			if names[s] != raw {
				t.Fatalf("got the series of %s for %s", names[s], raw)
			}
			if c.get(hash, []byte(raw)) != s {
				t.Fatalf("%s was dropped at once", raw)
			}
			held := 0
			for _, e := range c.shards[3].entries {
				for ; e != nil; e = e.next {
					held++
				}
			}
			if listed, _ := c.size(); held != listed || held > limit {
				t.Fatalf("the chains hold %d series, the ring %d, the bound is %d", held, listed, limit)
			}
		}
	})
}

func TestCache_KeepsWhatIsUsed(t *testing.T) {
	c := newCache(64 * 4)
	used, raw := newSeries("used"), []byte("used")
	c.add(hashTo(1, 0), raw, used)
	for i := range uint64(100) {
		c.add(hashTo(1, i+1), fmt.Append(nil, i), newSeries(fmt.Sprint(i)))
		if c.get(hashTo(1, 0), raw) != used {
			t.Fatalf("the series that is used all the time was dropped after %d others", i+1)
		}
	}
	if got, _ := c.size(); got != 4 {
		t.Errorf("holds %d series, want 4", got)
	}
}

func TestCache_ADroppedSeriesComesBackWithLaterCellTimes(t *testing.T) {
	c := newCache(1)
	first := newSeries("a")
	c.add(hashTo(1, 0), []byte("a"), first)
	first.cellTime(5000, 100)
	last := first.cellTime(5000, 100)
	c.gave(last)
	c.add(hashTo(1, 1), []byte("b"), newSeries("b"))
	again := newSeries("a")
	if got := c.add(hashTo(1, 0), []byte("a"), again); got != again {
		t.Fatal("the series was not dropped")
	}
	if got := again.cellTime(5000, 100); got <= last {
		t.Errorf("the cell timestamp is %d, and was %d before", got, last)
	}
}

func TestCache_ServesManyAtOnce(t *testing.T) {
	c := newCache(64 * 3)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range uint64(2000) {
				hash, raw := hashTo(i%2, i%7), fmt.Append(nil, i%11, i%7, i%2)
				s := c.get(hash, raw)
				if s == nil {
					s = c.add(hash, raw, newSeries(string(raw)))
				}
				if string(s.tsuid) != string(raw) {
					t.Errorf("got the series %s for %s", s.tsuid, raw)
				}
			}
		})
	}
	wg.Wait()
	if got, _ := c.size(); got > 6 {
		t.Errorf("two shards of 3 hold %d series", got)
	}
}

func BenchmarkCacheGet(b *testing.B) {
	c := newCache(1 << 16)
	raws := make([][]byte, 1000)
	for i := range raws {
		raws[i] = fmt.Appendf(nil, "label bytes of a usual length, about a hundred, of which only the last ones differ: %40d",
			i)
		c.add(uint64(i)<<50, raws[i], newSeries(string(raws[i])))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if c.get(uint64(i)<<50, raws[i]) == nil {
			b.Fatal("not held")
		}
		i = (i + 1) % len(raws)
	}
}
