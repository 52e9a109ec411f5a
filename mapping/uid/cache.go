package uid

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// cache is a bounded map for many readers. It forgets what was not read for a while, by the CLOCK rule: entries stand
// in a ring, a read marks its entry, and the hand of a full ring takes the next unmarked one and unmarks those it
// passes. A read thus takes a read lock only, of one of several shards. It is bounded in memory, too: long texts count
// as several entries.
type cache[K comparable, V any] struct {
	hash   func(maphash.Seed, K) uint64
	size   func(K, V) int // bytes of the texts of an entry
	seed   maphash.Seed
	mask   uint64
	shards []shard[K, V]
}

type shard[K comparable, V any] struct {
	mu    sync.RWMutex // guards what follows
	index map[K]*cacheEntry[K, V]
	ring  []*cacheEntry[K, V]
	hand  int
	limit int
	bytes int // of the entries' texts; bounded by shareBytes for each entry of the limit

	_ [32]byte // the locks of two shards do not share a cache line
}

type cacheEntry[K comparable, V any] struct {
	key   K
	value V
	read  atomic.Bool
}

const (
	maxShards     = 64
	minShardLimit = 64 // below it, uneven hashing would cost much of the bound
)

// shareBytes is how long the text of an entry may be on average. Beside it an entry takes some 130 bytes.
const shareBytes = 128

// newCache makes a cache of at most limit entries, 1 or more.
func newCache[K comparable, V any](limit int, hash func(maphash.Seed, K) uint64, size func(K, V) int) *cache[K, V] {
	n := 1
	for n < maxShards && limit/(2*n) >= minShardLimit {
		n *= 2
	}
	c := &cache[K, V]{hash: hash, size: size, seed: maphash.MakeSeed(), mask: uint64(n - 1),
		shards: make([]shard[K, V], n)}
	for i := range c.shards {
		c.shards[i].index = make(map[K]*cacheEntry[K, V])
		c.shards[i].limit = limit / n
	}
	return c
}

func (c *cache[K, V]) shard(key K) *shard[K, V] { return &c.shards[c.hash(c.seed, key)&c.mask] }

// get returns the value of a key.
func (c *cache[K, V]) get(key K) (value V, ok bool) {
	s := c.shard(key)
	s.mu.RLock()
	e := s.index[key]
	s.mu.RUnlock()
	if e == nil {
		return value, false
	}
	if !e.read.Load() { // most reads find it marked, and write nothing
		e.read.Store(true)
	}
	return e.value, true
}

// put sets the value of a key, which the cache then keeps. A key it has keeps its value: UIDs do not change meaning.
func (c *cache[K, V]) put(key K, value V) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index[key] != nil {
		return
	}
	e, size := &cacheEntry[K, V]{key: key, value: value}, c.size(key, value)
	full := false
	for len(s.ring) > 0 && (len(s.ring) >= s.limit || s.bytes+size > s.limit*shareBytes) {
		full = true
		old := s.drop()
		s.bytes -= c.size(old.key, old.value)
	}
	s.index[key] = e
	s.ring = append(s.ring, e)
	s.bytes += size
	if last := len(s.ring) - 1; full { // in place of what was dropped: the hand comes to it last
		s.ring[s.hand], s.ring[last] = e, s.ring[s.hand]
		s.hand = (s.hand + 1) % len(s.ring)
	}
}

// drop takes out the entry that the hand comes to first and that was not read since it last did.
func (s *shard[K, V]) drop() *cacheEntry[K, V] {
	for s.ring[s.hand].read.Swap(false) {
		s.hand = (s.hand + 1) % len(s.ring)
	}
	old, last := s.ring[s.hand], len(s.ring)-1
	delete(s.index, old.key)
	s.ring[s.hand], s.ring[last] = s.ring[last], nil
	s.ring = s.ring[:last]
	if s.hand == last {
		s.hand = 0
	}
	return old
}

func hashName(seed maphash.Seed, k nameKey) uint64 {
	return maphash.String(seed, k.text) + uint64(k.kind)
}

// hashID spreads ids that follow one another over the shards; they need no seed, since the process chose them.
func hashID(_ maphash.Seed, id ID) uint64 { return uint64(id.UID)*kinds + uint64(id.Kind) }
