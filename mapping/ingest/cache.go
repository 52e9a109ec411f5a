package ingest

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"
)

// cache finds a series by its label bytes. They are compared, not only hashed, so that two series can never be mixed.
// It holds a bounded number of entries, in bounded memory, and drops, approximately, those not used for longest (CLOCK:
// a hand goes round and drops the first entry that was not used since it last passed).
//
// A series is held under its label bytes with sorted labels and no empty values, and under each other form in which a
// sender wrote it; the table below sees to it that there is one *series for all.
type cache struct {
	seed   maphash.Seed
	table  *table
	shards [64]shard
	floor  atomic.Int64 // the latest cell timestamp given to any series, dropped ones included
}

type shard struct {
	mu      sync.RWMutex
	entries map[uint64]*entry
	ring    []*entry
	hand    int
	limit   int
	bytes   int // of the entries and their series; bounded by shareBytes for each entry of the limit
}

const (
	// shareBytes is the memory that an entry may take on average: several hundred bytes of labels are in it.
	shareBytes = 1 << 10
	// entryBytes is what an entry takes besides its key and its series, with its places in the map and in the ring.
	entryBytes = int(unsafe.Sizeof(entry{})) + 40
)

func (e *entry) bytes() int { return entryBytes + len(e.raw) + e.series.bytes() }

type entry struct {
	raw    []byte
	series *series
	seat   seatOf // the series', whose own memory is far away
	hash   uint64
	next   *entry // another series with the same hash

	// follower is the entry that was looked up after this one the last time: senders write their series in the same
	// order again and again.
	follower atomic.Pointer[entry]

	state    atomic.Uint32
	nameless bool // the series is, and need not be looked at to know
}

// The bits of an entry's state. Above them stands the last period in which its series was noted as active.
const (
	// found since the hand last passed; not so when new, or series met once would drive out the others
	entryUsed = 1 << iota
	entryGone // no longer held

	entryPeriod = iota // the lowest bit of the period
)

func newCache(limit int) *cache {
	c := &cache{seed: maphash.MakeSeed(), table: newTable()}
	for i := range c.shards {
		c.shards[i].entries = make(map[uint64]*entry)
		c.shards[i].limit = max(1, limit/len(c.shards))
	}
	return c
}

func (c *cache) shardOf(hash uint64) *shard { return &c.shards[hash>>58] }

// get returns the series with these label bytes, nil if it is not held.
func (c *cache) get(hash uint64, raw []byte) *series {
	if e := c.find(hash, raw); e != nil {
		return e.series
	}
	return nil
}

// find returns the entry with these label bytes, nil if there is none.
func (c *cache) find(hash uint64, raw []byte) *entry {
	s := c.shardOf(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for e := s.entries[hash]; e != nil; e = e.next {
		if bytes.Equal(e.raw, raw) {
			e.touch()
			return e
		}
	}
	return nil
}

// after returns the entry with these label bytes, nil if there is none; before is the entry that was looked up before
// it, or nil.
func (c *cache) after(before *entry, raw []byte) *entry {
	if before == nil {
		return c.find(maphash.Bytes(c.seed, raw), raw)
	}
	if e := before.follower.Load(); e != nil && e.held() && bytes.Equal(e.raw, raw) {
		e.touch()
		return e
	}
	e := c.find(maphash.Bytes(c.seed, raw), raw)
	if e != nil {
		before.follower.Store(e)
	}
	return e
}

func (e *entry) held() bool { return e.state.Load()&entryGone == 0 }

func (e *entry) touch() {
	if e.state.Load()&entryUsed == 0 {
		e.state.Or(entryUsed)
	}
}

// activeIn says whether the series was noted as active in a period.
func (e *entry) activeIn(period uint32) bool { return e.state.Load()>>entryPeriod == period }

// setActive notes that it was.
func (e *entry) setActive(period uint32) {
	e.state.And(1<<entryPeriod - 1)
	e.state.Or(period << entryPeriod)
}

// add puts a series in under some label bytes, which it keeps, and returns the one to use: another with the same TSUID
// if there is one.
func (c *cache) add(hash uint64, raw []byte, new *series) *series {
	s := c.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.entries[hash]; e != nil; e = e.next {
		if bytes.Equal(e.raw, raw) {
			return e.series
		}
	}
	held := c.table.retain(new)
	if held == new {
		new.startAfter(c.floor.Load())
	}
	e := &entry{raw: raw, series: held, seat: seatOf{held.lot, held.number}, hash: hash, nameless: held.nameless}
	full := false
	for len(s.ring) > 0 && (len(s.ring) >= s.limit || s.bytes+e.bytes() > s.limit*shareBytes) {
		full = true
		c.table.release(s.drop())
	}
	e.next = s.entries[hash] // drop may have taken the head away
	s.ring = append(s.ring, e)
	s.bytes += e.bytes()
	if last := len(s.ring) - 1; full { // in place of what was dropped: the hand comes to it last
		s.ring[s.hand], s.ring[last] = e, s.ring[s.hand]
		s.hand = (s.hand + 1) % len(s.ring)
	}
	s.entries[hash] = e
	return held
}

// drop drops the entry that was not used for longest, about, and returns its series.
func (s *shard) drop() *series {
	for s.ring[s.hand].state.And(^uint32(entryUsed))&entryUsed != 0 {
		s.hand = (s.hand + 1) % len(s.ring)
	}
	old, last := s.ring[s.hand], len(s.ring)-1
	s.remove(old)
	s.bytes -= old.bytes()
	s.ring[s.hand] = s.ring[last]
	s.ring[last] = nil
	s.ring = s.ring[:last]
	if s.hand == last {
		s.hand = 0
	}
	return old.series
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
	old.state.Or(entryGone)
	old.follower.Store(nil) // what is no longer held shall not keep others
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

// size is the number of entries held, and the memory that they and their series take.
func (c *cache) size() (entries, bytes int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		entries += len(s.ring)
		bytes += s.bytes
		s.mu.RUnlock()
	}
	return entries, bytes
}
