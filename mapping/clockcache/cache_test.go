package clockcache_test

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping/clockcache"
)

// newCache makes a cache of texts, each of which takes its length.
func newCache(maxEntries, maxBytes int) *clockcache.Cache[string, string] {
	return clockcache.New(clockcache.Config[string, string]{
		MaxEntries: maxEntries, MaxBytes: maxBytes, Hash: maphash.String,
		Size: func(_, text string) int { return len(text) },
	})
}

func TestCache_IsBoundedByEntries(t *testing.T) {
	for _, limit := range []int{1, 2, 63, 128, 1000, 5000} {
		c := newCache(limit, 1<<30)
		for i := range 20_000 {
			key := fmt.Sprint(i)
			c.Add(key, key)
			if v, ok := c.Get(key); !ok || v != key {
				t.Fatalf("limit %d: got %q, %v for what was just added", limit, v, ok)
			}
		}
		if n, _ := c.Len(); n > limit || n < limit*3/4 {
			t.Errorf("limit %d: holds %d entries", limit, n)
		}
	}
}

func TestCache_IsBoundedByBytes(t *testing.T) {
	const limit, maxBytes = 2048, 256 << 10
	c := newCache(limit, maxBytes)
	long := strings.Repeat("x", 8000)
	for i := range 20_000 {
		c.Add(fmt.Sprint(i), long[:i%8000])
	}
	held := 0
	for i := range 20_000 {
		v, _ := c.Get(fmt.Sprint(i))
		held += len(v)
	}
	if n, bytes := c.Len(); bytes != held || bytes > maxBytes || bytes < maxBytes/2 {
		t.Errorf("%d entries count as %d bytes and have %d, want %d at most", n, bytes, held, maxBytes)
	}
}

func TestCache_KeepsWhatIsRead(t *testing.T) {
	c := newCache(100, 1<<30)
	c.Add("read", "1")
	for i := range 10_000 {
		if v, ok := c.Get("read"); !ok || v != "1" {
			t.Fatalf("the entry that is read all the time is %q, %v after %d others", v, ok, i)
		}
		c.Add(fmt.Sprint(i), "")
	}
	if _, ok := c.Get("0"); ok {
		t.Error("an entry that was never read is still there")
	}
}

func TestCache_KeyKeepsItsValue(t *testing.T) {
	c := newCache(10, 1<<30)
	c.Add("a", "1")
	c.Add("a", "2")
	if v, ok := c.Get("a"); !ok || v != "1" {
		t.Errorf("got %q, %v; want the first value", v, ok)
	}
}

func TestCache_ManyAtOnce(t *testing.T) {
	c := newCache(1000, 1<<30)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				key := fmt.Sprint(i * (1 + worker%3))
				c.Add(key, key)
				if v, ok := c.Get(key); ok && v != key {
					t.Errorf("Get(%q) = %q", key, v)
				}
			}
		})
	}
	wg.Wait()
	if n, _ := c.Len(); n > 1000 || n < 750 {
		t.Errorf("holds %d entries, want about 1000 at most", n)
	}
}

// item is an entry of a Ring.
type item struct {
	id, size int
	used     bool
}

func (e *item) TakeUsed() bool {
	used := e.used
	e.used = false
	return used
}

func (e *item) Size() int { return e.size }

// Bounded by entries, a Ring evicts as a queue does in which used entries go to the back once.
func TestRing_EvictsByTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		ring := clockcache.NewRing[*item](limit, 0)
		var queue []*item
		for id := range rapid.IntRange(0, 60).Draw(t, "steps") {
			for _, e := range queue {
				e.used = e.used || rapid.Bool().Draw(t, "read")
			}
			var want, got []*item
			model := slices.Clone(queue)
			if len(model) == limit {
				used := make(map[*item]bool)
				for _, e := range model {
					used[e] = e.used
				}
				for used[model[0]] {
					used[model[0]] = false
					model = append(model[1:], model[0])
				}
				want, model = model[:1], model[1:]
			}
			e := &item{id: id}
			ring.Add(e, func(old *item) { got = append(got, old) })
			if !slices.Equal(got, want) {
				t.Fatalf("entry %d evicts %v, want %v", id, got, want)
			}
			queue = append(model, e)
			if ring.Len() != len(queue) {
				t.Fatalf("the ring has %d entries, want %d", ring.Len(), len(queue))
			}
		}
	})
}

func TestRing_IsBoundedByBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxBytes := rapid.IntRange(1, 50).Draw(t, "bytes")
		ring := clockcache.NewRing[*item](100, maxBytes)
		entries, bytes := 0, 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			e := &item{size: rapid.IntRange(0, 60).Draw(t, "size"), used: rapid.Bool().Draw(t, "read")}
			ring.Add(e, func(old *item) { entries, bytes = entries-1, bytes-old.size })
			entries, bytes = entries+1, bytes+e.size
			if ring.Len() != entries || ring.Bytes() != bytes || bytes > maxBytes && entries > 1 {
				t.Fatalf("the ring has %d entries of %d bytes, want %d of %d, %d at most", ring.Len(), ring.Bytes(), entries,
					bytes, maxBytes)
			}
		}
	})
}

// Without reads it is first in, first out.
func TestRing_NewEntriesAreEvictedLast(t *testing.T) {
	ring := clockcache.NewRing[*item](3, 100)
	var evicted []int
	for id := range 8 {
		ring.Add(&item{id: id, size: 1}, func(old *item) { evicted = append(evicted, old.id) })
	}
	if want := []int{0, 1, 2, 3, 4}; !slices.Equal(evicted, want) {
		t.Errorf("evicted %v, want %v", evicted, want)
	}
}
