package ingest

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// cache finds a series by its label bytes. They are compared, not only hashed, so that two series can never be mixed.
// It holds a bounded number of series and drops, approximately, those not used for longest (CLOCK: a hand goes round
// and drops the first entry that was not used since it last passed).
//
// A series is held under its label bytes with sorted labels and no empty values, and under each other form in which a
// sender wrote it, so that there is one *series for all.
type cache struct {
	seed   maphash.Seed
	shards [64]shard
	floor  atomic.Int64 // the latest cell timestamp given to any series, dropped ones included
}

type shard struct {
	mu      sync.RWMutex
	entries map[uint64]*entry
	ring    []*entry
	hand    int
	limit   int
}

type entry struct {
	raw    []byte
	series *series
	hash   uint64
	next   *entry      // another series with the same hash
	used   atomic.Bool // found since the hand last passed; not so when new, or series met once would drive out the others
}

func newCache(limit int) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].entries = make(map[uint64]*entry)
		c.shards[i].limit = max(1, limit/len(c.shards))
	}
	return c
}

func (c *cache) shardOf(hash uint64) *shard { return &c.shards[hash>>58] }

// get returns the series with these label bytes, nil if it is not held.
func (c *cache) get(hash uint64, raw []byte) *series {
	s := c.shardOf(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for e := s.entries[hash]; e != nil; e = e.next {
		if bytes.Equal(e.raw, raw) {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e.series
		}
	}
	return nil
}

// add puts a series in under some label bytes, which it keeps, and returns the one to use: that of another request if
// it was faster.
func (c *cache) add(hash uint64, raw []byte, new *series) *series {
	s := c.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.entries[hash]; e != nil; e = e.next {
		if bytes.Equal(e.raw, raw) {
			return e.series
		}
	}
	new.startAfter(c.floor.Load())
	e := &entry{raw: raw, series: new, hash: hash, next: s.entries[hash]}
	if len(s.ring) < s.limit {
		s.ring = append(s.ring, e)
	} else {
		for s.ring[s.hand].used.Swap(false) {
			s.hand = (s.hand + 1) % len(s.ring)
		}
		s.remove(s.ring[s.hand])
		s.ring[s.hand] = e
		s.hand = (s.hand + 1) % len(s.ring)
		e.next = s.entries[hash] // remove may have taken the head away
	}
	s.entries[hash] = e
	return new
}

// gave notes that a cell timestamp was given to a series.
func (c *cache) gave(cellTime int64) {
	for {
		floor := c.floor.Load()
		if cellTime <= floor || c.floor.CompareAndSwap(floor, cellTime) {
			return
		}
	}
}

// remove takes an entry out of its chain.
func (s *shard) remove(old *entry) {
	head := s.entries[old.hash]
	if head == old {
		if old.next == nil {
			delete(s.entries, old.hash)
		} else {
			s.entries[old.hash] = old.next
		}
		return
	}
	for e := head; e != nil; e = e.next {
		if e.next == old {
			e.next = old.next
			return
		}
	}
}

// len is the number of series held.
func (c *cache) len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.ring)
		s.mu.RUnlock()
	}
	return n
}
