// Package clockcache is a cache of bounded size for many concurrent readers, which evicts by the CLOCK rule: the
// entries stand in a ring, a read marks its entry as used, and the hand of a full ring evicts the next entry that is
// not marked and unmarks those that it passes. So a read writes at most one flag, where an LRU cache would move its
// entry in a list.
//
// Cache is the cache whole: sharded maps, each with a lock and a Ring. Who needs a map of another kind, as the cache of
// series does, whose keys are bytes that must not be copied to be looked up, keeps the map itself and uses a Ring.
//
// The bound is one of entries and of bytes, whichever is reached first.
package clockcache

// Entry is what a Ring holds; mostly a pointer.
type Entry interface {
	// TakeUsed says whether the entry was used since the last call. Reads may mark it at the same time.
	TakeUsed() bool
	// Size is the bytes that the entry takes. It never changes.
	Size() int
}

// Ring holds the entries of a cache, or of a shard of one, in the order in which they may be evicted. Its owner locks
// it. A new entry is not marked as used, or entries met once would drive out the others; the hand comes to it last.
type Ring[E Entry] struct {
	entries    []E
	hand       int
	maxEntries int
	maxBytes   int
	bytes      int
}

// NewRing returns a Ring of at most maxEntries entries, 1 or more, which together take at most maxBytes. An entry that
// is larger than that is held alone.
func NewRing[E Entry](maxEntries, maxBytes int) Ring[E] {
	return Ring[E]{maxEntries: max(1, maxEntries), maxBytes: maxBytes}
}

// Add evicts entries until there is room for e, calls evicted with each, and adds e.
func (r *Ring[E]) Add(e E, evicted func(E)) {
	full := false
	for len(r.entries) > 0 && (len(r.entries) >= r.maxEntries || r.bytes+e.Size() > r.maxBytes) {
		full = true
		evicted(r.evict())
	}
	r.entries = append(r.entries, e)
	r.bytes += e.Size()
	if last := len(r.entries) - 1; full { // in place of the evicted one, behind the hand
		r.entries[r.hand], r.entries[last] = e, r.entries[r.hand]
		r.hand = (r.hand + 1) % len(r.entries)
	}
}

// evict removes the first entry from the hand on that was not used since the hand last passed. The hand stays at its
// place, which may be past the end.
func (r *Ring[E]) evict() E {
	for r.hand %= len(r.entries); r.entries[r.hand].TakeUsed(); {
		r.hand = (r.hand + 1) % len(r.entries)
	}
	old, last := r.entries[r.hand], len(r.entries)-1
	r.bytes -= old.Size()
	r.entries[r.hand] = r.entries[last]
	var none E
	r.entries[last] = none
	r.entries = r.entries[:last]
	return old
}

// Len is the number of entries.
func (r *Ring[E]) Len() int { return len(r.entries) }

// Bytes is the size of all entries together.
func (r *Ring[E]) Bytes() int { return r.bytes }
