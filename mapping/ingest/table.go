package ingest

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"
)

// table holds one *series for each TSUID of which label bytes are in the cache, or points in memory. It is how a query
// finds points that are not in the store yet, and why two ways to write the labels of a series lead to one *series.
type table struct {
	seed   maphash.Seed
	held   atomic.Int64 // bytes of the open rows' memory, of all series, and of series that the cache has dropped
	pieces sync.Pool    // *[stagedBytes]byte, that no lot needs at the moment
	shards [64]tableShard
}

type tableShard struct {
	mu     sync.Mutex // may be held while a series is locked, not the other way round
	series map[string]*series
}

// seriesBytes is what a series takes of memory without its TSUID and its rows, but with its places in a table and in a
// lot.
const seriesBytes = int(unsafe.Sizeof(series{})+unsafe.Sizeof(lot{})/neighbours) + 40

func (s *series) bytes() int { return seriesBytes + len(s.tsuid) }

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	t.pieces.New = func() any { return new([stagedBytes]byte) }
	for i := range t.shards {
		t.shards[i].series = make(map[string]*series)
	}
	return t
}

func (t *table) shardOf(tsuid string) *tableShard {
	return &t.shards[maphash.String(t.seed, tsuid)>>58]
}

// retain notes that the cache holds the series under some more label bytes, and returns the one to use: s, or the one
// that is there already.
func (t *table) retain(s *series) *series {
	shard := t.shardOf(s.tsuid)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	s, put := shard.put(s)
	if s.refs == 0 && !put {
		t.held.Add(-int64(s.bytes())) // from now on the cache counts it
	}
	s.refs++
	return s
}

// put returns the series with s's TSUID, which is s if there is none, and whether there was none.
func (shard *tableShard) put(s *series) (held *series, put bool) {
	if held, ok := shard.series[s.tsuid]; ok {
		return held, false
	}
	shard.series[s.tsuid] = s
	s.lock()
	s.dropped = false
	s.unlock()
	return s, true
}

// release notes that the cache has dropped label bytes of the series.
func (t *table) release(s *series) {
	shard := t.shardOf(s.tsuid)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if s.refs--; s.refs == 0 {
		t.held.Add(int64(s.bytes()))
	}
	t.dropIdle(shard, s)
}

// settled notes that the series may have no points in memory any more.
func (t *table) settled(s *series) {
	shard := t.shardOf(s.tsuid)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	t.dropIdle(shard, s)
}

// dropIdle lets go of a series that nothing needs.
func (t *table) dropIdle(shard *tableShard, s *series) {
	if s.refs > 0 {
		return
	}
	s.lock()
	defer s.unlock()
	if s.idle() && !s.dropped {
		s.dropped = true
		t.held.Add(-int64(cap(s.current.points) + s.bytes()))
		s.current.points = nil
		delete(shard.series, s.tsuid)
	}
}

// revive returns the series to put points into instead of s, which was dropped after a request had found it.
func (t *table) revive(s *series) *series {
	shard := t.shardOf(s.tsuid)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	s, put := shard.put(s)
	if put {
		t.held.Add(int64(s.bytes()))
	}
	return s
}

// get returns the series with a TSUID, nil if nothing is known of it here.
func (t *table) get(tsuid []byte) *series {
	shard := &t.shards[maphash.Bytes(t.seed, tsuid)>>58]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.series[string(tsuid)]
}
