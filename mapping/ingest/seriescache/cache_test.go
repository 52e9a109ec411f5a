package seriescache

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping/ingest/memtable"
)

func newTable() *memtable.Table { return memtable.New(memtable.Config{}) }

func newSeries(t *memtable.Table, tsuid string) *memtable.Series {
	return t.NewSeries(t.NextSlot(memtable.Slot{}), tsuid, false)
}

// get is Get with a hash of the test's.
func (c *Cache) get(hash uint64, raw []byte) *memtable.Series {
	if e := c.find(hash, raw); e != nil {
		return e.Series
	}
	return nil
}

// hashTo makes hashes that fall into one stripe.
func hashTo(stripe, n uint64) uint64 { return stripe<<58 | n }

func TestCache_SeriesWithOneHashAreNotMixed(t *testing.T) {
	c := New(64*10, newTable())
	const hash = 42
	var all []*memtable.Series
	for i := range 10 {
		s := newSeries(c.table, string([]byte{byte(i)}))
		raw := fmt.Sprintf("series %d", i)
		if c.get(hash, []byte(raw)) != nil {
			t.Fatalf("%s is held before it was added", raw)
		}
		if got := c.add(hash, []byte(raw), s); got != s {
			t.Fatalf("%s: add returned another series", raw)
		}
		if got := c.add(hash, []byte(raw), newSeries(c.table, "")); got != s {
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
	s := c.stripeOf(hash)
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

func entryOf(s *stripe, hash uint64, of *memtable.Series) *Entry {
	e := s.entries[hash]
	for e.Series != of {
		e = e.next
	}
	return e
}

// A cache of any history holds no more than its bound, and never the wrong series.
func TestCache_HoldsTheLatestUpToItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		c := New(64*limit, newTable())
		names := map[*memtable.Series]string{}
		hashes := rapid.SampledFrom([]uint64{hashTo(3, 0), hashTo(3, 1), hashTo(3, 2)})
		for range rapid.IntRange(0, 100).Draw(t, "calls") {
			hash := hashes.Draw(t, "hash")
			raw := fmt.Sprintf("%d %s", hash, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "raw"))
			s := c.get(hash, []byte(raw))
			if s == nil {
				s = newSeries(c.table, raw)
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
			for _, e := range c.stripes[3].entries {
				for ; e != nil; e = e.next {
					held++
				}
			}
			if listed, _ := c.Size(); held != listed || held > limit {
				t.Fatalf("the chains hold %d series, the ring %d, the bound is %d", held, listed, limit)
			}
		}
	})
}

func TestCache_KeepsWhatIsUsed(t *testing.T) {
	c := New(64*4, newTable())
	used, raw := newSeries(c.table, "used"), []byte("used")
	c.add(hashTo(1, 0), raw, used)
	for i := range uint64(100) {
		c.add(hashTo(1, i+1), fmt.Append(nil, i), newSeries(c.table, fmt.Sprint(i)))
		if c.get(hashTo(1, 0), raw) != used {
			t.Fatalf("the series that is used all the time was dropped after %d others", i+1)
		}
	}
	if got, _ := c.Size(); got != 4 {
		t.Errorf("holds %d series, want 4", got)
	}
}

func TestCache_ADroppedSeriesComesBackWithLaterCellTimes(t *testing.T) {
	c := New(1, newTable())
	first := newSeries(c.table, "a")
	c.add(hashTo(1, 0), []byte("a"), first)
	first.CellTime(5000, 100)
	last := first.CellTime(5000, 100)
	c.table.RaiseFloor(last)
	c.add(hashTo(1, 1), []byte("b"), newSeries(c.table, "b"))
	again := newSeries(c.table, "a")
	if got := c.add(hashTo(1, 0), []byte("a"), again); got != again {
		t.Fatal("the series was not dropped")
	}
	if got := again.CellTime(5000, 100); got <= last {
		t.Errorf("the cell timestamp is %d, and was %d before", got, last)
	}
}

func TestCache_ServesManyAtOnce(t *testing.T) {
	c := New(64*3, newTable())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range uint64(2000) {
				hash, raw := hashTo(i%2, i%7), fmt.Append(nil, i%11, i%7, i%2)
				s := c.get(hash, raw)
				if s == nil {
					s = c.add(hash, raw, newSeries(c.table, string(raw)))
				}
				if string(s.TSUID()) != string(raw) {
					t.Errorf("got the series %s for %s", s.TSUID(), raw)
				}
			}
		})
	}
	wg.Wait()
	if got, _ := c.Size(); got > 6 {
		t.Errorf("two stripes of 3 hold %d series", got)
	}
}

func BenchmarkCacheGet(b *testing.B) {
	c := New(1<<16, newTable())
	raws := make([][]byte, 1000)
	for i := range raws {
		raws[i] = fmt.Appendf(nil, "label bytes of a usual length, about a hundred, of which only the last ones differ: %40d",
			i)
		c.add(uint64(i)<<50, raws[i], newSeries(c.table, string(raws[i])))
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
