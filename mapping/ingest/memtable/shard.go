package memtable

import (
	"math"
	"sync"

	"github.com/promtsd/promtsd/mapping"
)

// Shards is the number of flush shards. Each series belongs to one; a flush interval goes once through all of them.
const Shards = 256

// Flush worker i has the flush shards i, i+Workers, i+2*Workers and so on, and flushes one after the other. With salt
// a worker has the series of one salt bucket, or of a few: so a region that does not answer holds up the worker whose
// rows it has, for as long as the store tries, and no other. Without salt nothing is known of where rows are.
const (
	unsaltedWorkers = 4
	maxWorkers      = 16
)

func workersOf(s mapping.Schema) int {
	if s.SaltWidth == 0 {
		return unsaltedWorkers
	}
	return min(s.SaltBuckets, maxWorkers)
}

// Workers is the number of flush workers.
func (t *Table) Workers() int { return t.workers }

// shardFor chooses the flush shard of a series.
func (t *Table) shardFor(s *Series) int {
	turn := int(t.turn.Add(1))
	schema := t.config.Schema
	if schema.SaltWidth == 0 {
		return turn % Shards
	}
	worker := schema.Bucket([]byte(s.tsuid)) % t.workers
	return worker + turn%(Shards/t.workers)*t.workers
}

// shard lists series that have something to flush.
type shard struct {
	busy sync.Mutex // held from Flush.Begin to Flush.End

	mu       sync.Mutex
	series   []*Series
	oldest   oldest // of the samples that are listed here
	flushing oldest // of those that a flush has taken
}

// oldest is the lowest journal entry and the lowest base time of some samples.
type oldest struct {
	entry uint64
	base  uint32
}

// nothing is the oldest of no samples.
var nothing = oldest{math.MaxUint64, math.MaxUint32}

func (o oldest) min(p oldest) oldest { return oldest{min(o.entry, p.entry), min(o.base, p.base)} }

// listedBytes is the memory of a flush shard's list for each series: the list grows by a quarter or more.
const listedBytes = 12

// list lists a series in its flush shard, for samples whose oldest are told, and says by how many bytes the list grew.
// s must be locked.
func (t *Table) list(s *Series, o oldest) (grown int) {
	if s.shard == 0 {
		s.shard = uint16(t.shardFor(s)) + 1
	}
	sh := &t.shards[s.shard-1]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.oldest = sh.oldest.min(o)
	if s.listed {
		return 0
	}
	s.listed = true
	sh.series = append(sh.series, s)
	return listedBytes
}

// oldest is the oldest of all samples that are buffered.
func (t *Table) oldest() oldest {
	lowest := nothing
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		lowest = lowest.min(sh.oldest).min(sh.flushing)
		sh.mu.Unlock()
	}
	return lowest
}

// OldestEntry is the lowest journal entry of which samples are buffered; math.MaxUint64 if there is none. Read the
// journal's entries in flight before: the reverse can miss one.
func (t *Table) OldestEntry() uint64 { return t.oldest().entry }

// OldestBase is the lowest base time that Buffered may find points of; math.MaxUint32 if there is none. What was
// acknowledged before the call, and is older, is in the data table.
func (t *Table) OldestBase() uint32 { return t.oldest().base }

// Buffered calls f with the points of series that are acknowledged and may not be in the data table yet: for each
// TSUID that has any, by its position, and each of its hours from one base time to another, both included, ascending.
// points is a point list (see mapping.AppendPoint) in order of arrival, and only f's until it returns. Read here
// before the data table: the reverse can miss samples that are flushed in between.
func (t *Table) Buffered(tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte)) {
	for i, tsuid := range tsuids {
		s := t.get(tsuid)
		if s == nil {
			continue
		}
		s.Lock()
		for r := range s.rowsFrom(from) {
			if r.base > to {
				break
			}
			if len(r.points) > 0 {
				f(i, r.base, r.points)
			}
		}
		s.Unlock()
	}
}
