// Package memtable holds samples that are durable in the journal and not yet in the data table: an open row for each
// hour of each series. It is pure memory: no store, no context, no clock of its own.
//
//	Table
//	+- stripes: TSUID -> *Series                     found by queries, and by the series cache
//	|     Series: open rows, cell timestamps, days that are indexed
//	|     group of 32 Series: one mutex, one staging buffer
//	+- flush shards: the series that have something to flush, in turn
//
// An append goes through a Writer, a flush through a Flush:
//
//	Writer.Append, Writer.AppendHistogram      samples of a journal entry into open rows
//	Flush.Begin, Take, Commit or Abort, End    open rows of one flush shard to the store
//	Table.Buffered                             what queries see
//
// Lock order: stripe, then series group, then flush shard. Nobody holds two stripes, two groups or two shards. All
// exported methods take the locks they need; those that want a series to be locked by their caller say so.
package memtable

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/promtsd/promtsd/mapping"
)

// Config is what a Table needs to know.
type Config struct {
	Schema    mapping.Schema
	StartBase uint32 // the hour in which the process started: its rows may have cells in the store already
	Merge     bool   // rows of ended hours are taken once more, to make one cell of their cells
	MaxBytes  int64  // of buffered samples; from half of it on there is pressure, see Pressed
}

// Table holds one *Series for each TSUID that the series cache knows, or of which samples are buffered. A query finds
// samples here that are not in the store yet, and two ways to write the labels of a series lead to one *Series. It is
// safe for concurrent use.
type Table struct {
	config   Config
	seed     maphash.Seed
	buffered atomic.Int64 // bytes of open rows, of flush shards' lists, and of series that the series cache has dropped
	floor    atomic.Int64 // see Floor
	buffers  sync.Pool    // *[stagingBytes]byte that no group needs at the moment
	stripes  [64]stripe

	shards  [Shards]shard
	workers int
	turn    atomic.Uint32 // gives series their flush shards in turn
}

type stripe struct {
	mu     sync.Mutex
	series map[string]*Series
}

// New returns an empty Table.
func New(c Config) *Table {
	t := &Table{config: c, seed: maphash.MakeSeed(), workers: workersOf(c.Schema)}
	t.buffers.New = func() any { return new([stagingBytes]byte) }
	for i := range t.stripes {
		t.stripes[i].series = make(map[string]*Series)
	}
	for i := range t.shards {
		t.shards[i].oldest, t.shards[i].flushing = nothing, nothing
	}
	return t
}

func (t *Table) stripeOf(tsuid string) *stripe {
	return &t.stripes[maphash.String(t.seed, tsuid)>>58]
}

// seriesBytes is the memory of a series without its TSUID and its rows, but with its places in a table and in a group.
const seriesBytes = int(unsafe.Sizeof(Series{})+unsafe.Sizeof(group{})/groupSize) + 40

// Bytes is the memory of the series without its rows.
func (s *Series) Bytes() int { return seriesBytes + len(s.tsuid) }

// Retain notes that the series cache refers to the series once more, and returns the one to use: s, or the one with the
// same TSUID that is there already.
func (t *Table) Retain(s *Series) *Series {
	st := t.stripeOf(s.tsuid)
	st.mu.Lock()
	defer st.mu.Unlock()
	s, added := st.put(s)
	if added {
		s.startAfter(t.floor.Load())
	} else if s.refs == 0 {
		t.buffered.Add(-int64(s.Bytes())) // from now on the cache counts it
	}
	s.refs++
	return s
}

// put returns the series with s's TSUID, which is s if there is none, and whether there was none.
func (st *stripe) put(s *Series) (live *Series, added bool) {
	if live, ok := st.series[s.tsuid]; ok {
		return live, false
	}
	st.series[s.tsuid] = s
	s.Lock()
	s.dropped = false
	s.Unlock()
	return s, true
}

// Release undoes one Retain.
func (t *Table) Release(s *Series) {
	st := t.stripeOf(s.tsuid)
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.refs--; s.refs == 0 {
		t.buffered.Add(int64(s.Bytes()))
	}
	t.dropIdle(st, s)
}

// flushed drops the series if its last samples were flushed and nothing else needs it.
func (t *Table) flushed(s *Series) {
	st := t.stripeOf(s.tsuid)
	st.mu.Lock()
	defer st.mu.Unlock()
	t.dropIdle(st, s)
}

// dropIdle drops a series that nothing needs. Its stripe must be locked.
func (t *Table) dropIdle(st *stripe, s *Series) {
	if s.refs > 0 {
		return
	}
	s.Lock()
	defer s.Unlock()
	if s.idle() && !s.dropped {
		s.dropped = true
		t.buffered.Add(-int64(cap(s.current.points) + s.Bytes()))
		s.current.points = nil
		delete(st.series, s.tsuid)
	}
}

// lockLive locks s, or the series that took its place after it was dropped, and returns the one that is locked.
func (t *Table) lockLive(s *Series) *Series {
	for {
		s.Lock()
		if !s.dropped {
			return s
		}
		s.Unlock()
		s = t.revive(s)
	}
}

// revive returns the series to append to instead of s, which was dropped after a request had found it.
func (t *Table) revive(s *Series) *Series {
	st := t.stripeOf(s.tsuid)
	st.mu.Lock()
	defer st.mu.Unlock()
	s, added := st.put(s)
	if added {
		t.buffered.Add(int64(s.Bytes()))
	}
	return s
}

// get returns the series with a TSUID, nil if there is none.
func (t *Table) get(tsuid []byte) *Series {
	st := &t.stripes[maphash.Bytes(t.seed, tsuid)>>58]
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.series[string(tsuid)]
}

// Floor is the latest cell timestamp, in milliseconds since 1970, that was given to any series, dropped ones included.
func (t *Table) Floor() int64 { return t.floor.Load() }

// RaiseFloor notes that a cell timestamp was given.
func (t *Table) RaiseFloor(timestamp int64) {
	for {
		floor := t.floor.Load()
		if timestamp <= floor || t.floor.CompareAndSwap(floor, timestamp) {
			return
		}
	}
}

// BufferedBytes is the memory of the samples that are buffered, and of what was set aside.
func (t *Table) BufferedBytes() int64 { return t.buffered.Load() }

// SetAside counts bytes as buffered that are elsewhere; a negative number undoes it.
func (t *Table) SetAside(bytes int64) { t.buffered.Add(bytes) }

// Full says that no more samples should be appended.
func (t *Table) Full() bool { return t.buffered.Load() >= t.config.MaxBytes }

// Pressed says that samples should be flushed before their time: more than half of what may be buffered is.
func (t *Table) Pressed() bool { return t.buffered.Load() > t.config.MaxBytes/2 }
