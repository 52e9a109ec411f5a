package uid

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/promtsd/promtsd/mapping"
)

func (c *cache[K, V]) len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.index)
		if len(s.index) != len(s.ring) {
			n = -1 << 40
		}
		s.mu.RUnlock()
	}
	return n
}

func TestCache_KeepsItsBound(t *testing.T) {
	for _, limit := range []int{1, 2, 63, 128, 1000, 5000} {
		c := newCache(limit, hashName, func(k nameKey, _ int) int { return len(k.text) })
		for i := range 20_000 {
			c.put(nameKey{text: fmt.Sprint(i)}, i)
			if v, ok := c.get(nameKey{text: fmt.Sprint(i)}); !ok || v != i {
				t.Fatalf("limit %d: get of what was just put: %d, %v", limit, v, ok)
			}
		}
		if n := c.len(); n > limit || n < limit*3/4 {
			t.Errorf("limit %d: holds %d entries", limit, n)
		}
	}
}

func TestCache_IsBoundedByMemory(t *testing.T) {
	const limit = 2048
	c := newCache(limit, hashID, func(_ ID, text string) int { return len(text) })
	long := strings.Repeat("x", 8000)
	for i := range 20_000 {
		c.put(ID{UID: mapping.UID(i)}, long[:i%8000])
	}
	bytes := 0
	for i := range c.shards {
		held := 0
		for _, e := range c.shards[i].ring {
			held += len(e.value)
		}
		if held != c.shards[i].bytes {
			t.Errorf("%d bytes are counted, held are %d", c.shards[i].bytes, held)
		}
		bytes += held
	}
	if n := c.len(); bytes > limit*shareBytes || bytes < limit*shareBytes/2 || n < 0 {
		t.Errorf("%d entries have %d bytes, want %d at most", n, bytes, limit*shareBytes)
	}
}

func TestCache_KeepsWhatIsRead(t *testing.T) {
	c := newCache(100, hashID, func(ID, int) int { return 0 })
	c.put(ID{UID: 1}, 1)
	for i := range 10_000 {
		if v, ok := c.get(ID{UID: 1}); !ok || v != 1 {
			t.Fatalf("entry that is read all the time is %d, %v after %d others", v, ok, i)
		}
		c.put(ID{UID: mapping.UID(i + 2)}, i)
	}
	if _, ok := c.get(ID{UID: 2}); ok {
		t.Error("entry that was never read is still there")
	}
}

func TestCache_KeyKeepsItsValue(t *testing.T) {
	c := newCache(10, hashID, func(ID, int) int { return 0 })
	c.put(ID{UID: 1}, 1)
	c.put(ID{UID: 1}, 2)
	if v, ok := c.get(ID{UID: 1}); !ok || v != 1 {
		t.Errorf("got %d, %v; want the first value, 1", v, ok)
	}
	if _, ok := c.get(ID{Kind: mapping.Tagk, UID: 1}); ok {
		t.Error("found under another kind")
	}
}

func TestCache_ManyAtOnce(t *testing.T) {
	c := newCache(1000, hashID, func(ID, int) int { return 0 })
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				id := ID{UID: mapping.UID(i*(1+worker%3) + 1)}
				c.put(id, int(id.UID))
				if v, ok := c.get(id); ok && v != int(id.UID) {
					t.Errorf("get(%v) = %d", id, v)
				}
			}
		})
	}
	wg.Wait()
	if n := c.len(); n > 1000 || n < 0 {
		t.Errorf("holds %d entries, want at most 1000", n)
	}
}
