// Package seriescache finds the series of a request by the bytes that its sender wrote: label bytes, or references to
// the symbols of remote write 2.0. It does no I/O.
//
//	Cache    bytes -> Entry -> *memtable.Series; bounded by entries and bytes, CLOCK
//	Symbols  symbol -> number, so that references of different requests can be compared
//	Lookup   the entries of one request, in order; one goroutine
//	Finder   the same while the request is being decoded; one goroutine
//
// Lookup first tries the series that followed the previous one in the last request: senders keep their order.
//
// Lock order: cache stripe, then the locks of package memtable.
package seriescache

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/promtsd/promtsd/mapping/clockcache"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
)

// Cache finds a series by its label bytes. They are compared, not only hashed, so that two series can never be mixed.
// It holds a bounded number of entries, in bounded memory; see package clockcache for which it drops.
//
// A series is held under its label bytes with sorted labels and no empty values, and under each other encoding in which
// a sender wrote it; the memtable sees to it that there is one Series for all. It is safe for concurrent use.
type Cache struct {
	seed    maphash.Seed
	table   *memtable.Table
	symbols *symbols
	stripes [64]stripe
}

type stripe struct {
	mu      sync.RWMutex
	entries map[uint64]*Entry
	ring    clockcache.Ring[*Entry]
}

const (
	// shareBytes is the memory of an entry on average, at most: several hundred bytes of labels are in it.
	shareBytes = 1 << 10
	// entryBytes is the memory of an entry without its key and its series, with its places in the map and in the ring.
	entryBytes = int(unsafe.Sizeof(Entry{})) + 40
)

// Size implements clockcache.Entry: the memory of the entry and its series.
func (e *Entry) Size() int { return entryBytes + len(e.raw) + e.Series.Bytes() }

// TakeUsed implements clockcache.Entry.
func (e *Entry) TakeUsed() bool { return e.state.And(^uint32(entryUsed))&entryUsed != 0 }

// Entry is a series with some bytes by which it is found.
type Entry struct {
	raw    []byte
	Series *memtable.Series
	Slot   memtable.Slot // the series', whose own memory is far away
	hash   uint64
	next   *Entry // another series with the same hash

	// follower is the entry that was looked up after this one the last time.
	follower atomic.Pointer[Entry]

	state    atomic.Uint32
	Nameless bool // the series has no metric name; it need not be looked at to know
}

// The bits of an entry's state. Above them stands the last period in which its series was active.
const (
	// found since the hand last passed; not so when new, or series met once would drive out the others
	entryUsed = 1 << iota
	entryGone // no longer held

	entryPeriod = iota // the lowest bit of the period
)

// New returns an empty Cache of so many entries at most.
func New(limit int, table *memtable.Table) *Cache {
	c := &Cache{seed: maphash.MakeSeed(), table: table, symbols: newSymbols(limit)}
	for i := range c.stripes {
		c.stripes[i].entries = make(map[uint64]*Entry)
		share := max(1, limit/len(c.stripes))
		c.stripes[i].ring = clockcache.NewRing[*Entry](share, share*shareBytes)
	}
	return c
}

func (c *Cache) stripeOf(hash uint64) *stripe { return &c.stripes[hash>>58] }

func (c *Cache) hash(raw []byte) uint64 { return maphash.Bytes(c.seed, raw) }

// Get returns the series with these label bytes, nil if it is not held.
func (c *Cache) Get(labels []byte) *memtable.Series {
	if e := c.find(c.hash(labels), labels); e != nil {
		return e.Series
	}
	return nil
}

// find returns the entry with these label bytes, nil if there is none.
func (c *Cache) find(hash uint64, raw []byte) *Entry {
	s := c.stripeOf(hash)
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
func (c *Cache) after(before *Entry, raw []byte) *Entry {
	if before == nil {
		return c.find(c.hash(raw), raw)
	}
	if e := before.follower.Load(); e != nil && e.held() && bytes.Equal(e.raw, raw) {
		e.touch()
		return e
	}
	e := c.find(c.hash(raw), raw)
	if e != nil {
		before.follower.Store(e)
	}
	return e
}

func (e *Entry) held() bool { return e.state.Load()&entryGone == 0 }

func (e *Entry) touch() {
	if e.state.Load()&entryUsed == 0 {
		e.state.Or(entryUsed)
	}
}

// ActiveIn says whether SetActive was told of a period last.
func (e *Entry) ActiveIn(period uint32) bool { return e.state.Load()>>entryPeriod == period }

// SetActive notes in which period samples of the series came last.
func (e *Entry) SetActive(period uint32) {
	e.state.And(1<<entryPeriod - 1)
	e.state.Or(period << entryPeriod)
}

// Add holds a series under some label bytes, which it retains, and returns the one to use: another with the same
// TSUID if there is one.
func (c *Cache) Add(raw []byte, new *memtable.Series) *memtable.Series {
	return c.add(c.hash(raw), raw, new)
}

func (c *Cache) add(hash uint64, raw []byte, new *memtable.Series) *memtable.Series {
	s := c.stripeOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.entries[hash]; e != nil; e = e.next {
		if bytes.Equal(e.raw, raw) {
			return e.Series
		}
	}
	live := c.table.Retain(new)
	e := &Entry{raw: raw, Series: live, Slot: live.Slot(), hash: hash, Nameless: live.Nameless()}
	s.ring.Add(e, func(old *Entry) {
		s.remove(old)
		c.table.Release(old.Series)
	})
	e.next = s.entries[hash] // which the ring may have changed
	s.entries[hash] = e
	return live
}

// remove takes an entry out of its chain.
func (s *stripe) remove(old *Entry) {
	old.state.Or(entryGone)
	old.follower.Store(nil) // an entry that is gone must not keep others in memory
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

// Size is the number of entries held, and the memory of them and their series.
func (c *Cache) Size() (entries, bytes int) {
	for i := range c.stripes {
		s := &c.stripes[i]
		s.mu.RLock()
		entries += s.ring.Len()
		bytes += s.ring.Bytes()
		s.mu.RUnlock()
	}
	return entries, bytes
}
