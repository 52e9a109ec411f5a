package clockcache

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Config is what a Cache needs.
type Config[K comparable, V any] struct {
	MaxEntries int                          // in all; 1 or more
	MaxBytes   int                          // of all entries together, by Size
	Hash       func(maphash.Seed, K) uint64 // its lowest bits choose the shard
	Size       func(K, V) int               // bytes that an entry takes, below 4 GiB
}

// Cache is a map of bounded size for many concurrent readers. A read takes a read lock of one of several shards. It is
// safe for concurrent use.
type Cache[K comparable, V any] struct {
	hash   func(maphash.Seed, K) uint64
	size   func(K, V) int
	seed   maphash.Seed
	mask   uint64
	shards []shard[K, V]
}

type shard[K comparable, V any] struct {
	mu    sync.RWMutex // guards what follows
	index map[K]*entry[K, V]
	ring  Ring[*entry[K, V]]

	_ [32]byte // the locks of two shards do not share a cache line
}

type entry[K comparable, V any] struct {
	key   K
	value V
	used  atomic.Bool
	size  uint32
}

func (e *entry[K, V]) TakeUsed() bool { return e.used.Swap(false) }
func (e *entry[K, V]) Size() int      { return int(e.size) }

const (
	maxShards     = 64
	minShardLimit = 64 // below it, uneven hashing would cost much of the bound
)

// New returns an empty Cache.
func New[K comparable, V any](c Config[K, V]) *Cache[K, V] {
	n := 1
	for n < maxShards && c.MaxEntries/(2*n) >= minShardLimit {
		n *= 2
	}
	cache := &Cache[K, V]{hash: c.Hash, size: c.Size, seed: maphash.MakeSeed(), mask: uint64(n - 1),
		shards: make([]shard[K, V], n)}
	for i := range cache.shards {
		s := &cache.shards[i]
		s.index = make(map[K]*entry[K, V])
		s.ring = NewRing[*entry[K, V]](c.MaxEntries/n, c.MaxBytes/n)
	}
	return cache
}

func (c *Cache[K, V]) shard(key K) *shard[K, V] { return &c.shards[c.hash(c.seed, key)&c.mask] }

// Get returns the value of a key, and marks it as used.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	s := c.shard(key)
	s.mu.RLock()
	e := s.index[key]
	s.mu.RUnlock()
	if e == nil {
		return value, false
	}
	if !e.used.Load() { // most reads find it marked, and write nothing
		e.used.Store(true)
	}
	return e.value, true
}

// Add adds a key with its value, both of which the cache then keeps. A key that it has keeps its value.
func (c *Cache[K, V]) Add(key K, value V) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index[key] != nil {
		return
	}
	e := &entry[K, V]{key: key, value: value, size: uint32(c.size(key, value))}
	s.ring.Add(e, func(old *entry[K, V]) { delete(s.index, old.key) })
	s.index[key] = e
}

// Len is the number of entries, and Bytes what they take; each shard is counted at its own moment.
func (c *Cache[K, V]) Len() (entries, bytes int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		entries += s.ring.Len()
		bytes += s.ring.Bytes()
		s.mu.RUnlock()
	}
	return entries, bytes
}
