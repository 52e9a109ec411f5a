package memtable

import (
	"math"

	"github.com/promtsd/promtsd/mapping"
)

const (
	flushRows  = 16_000   // rows that are on their way into the store, at most; each flush worker has its share
	flushBytes = 16 << 20 // bytes of points that are, roughly
)

// Row is an open row whose points are to be stored.
type Row struct {
	Series *Series
	Base   uint32 // base time
	// Points is a point list; valid until Commit or Abort. It is empty where there is only something to merge.
	Points    []byte
	Ascending bool  // the points ascend
	Mixed     bool  // there may be native histograms among the points
	Merge     bool  // the hour has ended, and the store has cells of the row: one cell should be made of all
	CellTime  int64 // the cell timestamp; a row of more than MaxCellBytes uses those that follow, too

	// The caller says so before Commit: its cells and the points have become one cell.
	Merged bool
}

// Flush moves the rows of one flush shard after the other to the store, for one flush worker:
//
//	f.Begin(shard)
//	for {
//		rows, latest := f.Take(now) // until there are none
//		// store them
//		f.Commit() // or Abort, which ends the loop
//	}
//	f.End()
type Flush struct {
	table  *Table
	shard  *shard
	series []*Series // that the shard listed at Begin
	rows   []Row
	bytes  int
	next   position // of the rows that were not taken yet
	failed bool
}

// position is a place in the rows of the series of a flush.
type position struct {
	series int
	base   uint32 // rows of this series before it were taken
}

// NewFlush returns the memory of a flush worker.
func (t *Table) NewFlush() *Flush { return &Flush{table: t} }

// Begin takes the list of a flush shard, and waits while another flush has it. What comes meanwhile is listed for the
// next flush.
func (f *Flush) Begin(shard int) {
	sh := &f.table.shards[shard]
	sh.busy.Lock()
	sh.mu.Lock()
	f.series = sh.series
	sh.series, sh.flushing, sh.oldest = nil, sh.oldest, nothing
	sh.mu.Unlock()
	f.shard, f.next, f.failed = sh, position{}, false
}

// Take returns the next rows of the flush shard, none at the end, as many as a flush worker may have on their way at a
// time, and the latest cell timestamp that they may use. now is the clock, in seconds since 1970.
func (f *Flush) Take(now int64) (rows []Row, latest int64) {
	f.rows, f.bytes = f.rows[:0], 0
	for ; f.next.series < len(f.series); f.next = (position{series: f.next.series + 1}) {
		s := f.series[f.next.series]
		s.Lock()
		// Cells are ordered by their timestamps, which follow the arrival of their samples.
		cellTime := max(s.arrived, s.runTime+1)
		full := false
		for r := range s.rowsFrom(f.next.base) {
			if full = len(f.rows) >= flushRows/f.table.workers || f.bytes >= flushBytes/f.table.workers; full {
				f.next.base = r.base
				break
			}
			if f.takeRow(s, r, cellTime, now) {
				latest = max(latest, s.runTime)
			}
		}
		s.Unlock()
		if full {
			break
		}
	}
	f.table.RaiseFloor(latest) // what arrives from now on is later
	return f.rows, latest
}

// takeRow takes a row if there is something to store of it. Its series must be locked.
func (f *Flush) takeRow(s *Series, r *row, cellTime, now int64) (taken bool) {
	ended := int64(r.base)+mapping.HourMs/1000 <= now
	merge := f.table.config.Merge && ended && r.cells > 0 && (len(r.points) > 0 || r.cells > 1)
	if len(r.points) == 0 && !merge {
		return false
	}
	r.flushing = len(r.points)
	f.bytes += len(r.points)
	// A row of very many points becomes several cells, each with a timestamp of its own; two that follow each other have
	// more than MaxCellBytes together.
	s.runTime = max(s.runTime, cellTime+int64(2*len(r.points)/MaxCellBytes))
	s.runMax = math.MaxInt64
	f.rows = append(f.rows, Row{
		Series: s, Base: r.base, Points: r.points, Ascending: r.ascending, Mixed: r.mixed, Merge: merge, CellTime: cellTime,
	})
	return true
}

// Commit notes that the rows of the latest Take are in the store.
func (f *Flush) Commit() {
	for i := range f.rows {
		taken := &f.rows[i]
		taken.Series.Lock()
		r := taken.Series.find(taken.Base)
		r.commit()
		switch {
		case !f.table.config.Merge || taken.Merge && !taken.Merged:
			r.cells = 0 // nothing to merge, or not to be merged
		case taken.Merged:
			r.cells = 1
		case r.cells < 255:
			r.cells++
		}
		taken.Series.Unlock()
	}
}

// Abort notes that the rows of the latest Take may not be in the store: a later flush takes them again.
func (f *Flush) Abort() {
	f.failed = true
	for i := range f.rows {
		s := f.rows[i].Series
		s.Lock()
		s.find(f.rows[i].Base).flushing = 0
		s.Unlock()
	}
}

// End gives the flush shard back: series that have more to flush are listed again, and the memory of others is freed.
func (f *Flush) End() {
	sh := f.shard
	defer sh.busy.Unlock()
	sh.mu.Lock()
	if f.failed {
		sh.oldest = sh.oldest.min(sh.flushing)
	}
	sh.flushing = nothing
	sh.mu.Unlock()
	again := f.release()
	sh.mu.Lock()
	sh.series = append(sh.series, again...)
	sh.mu.Unlock()
	f.series, f.shard = nil, nil
}

// release frees the memory that the series of the flush no longer need, and returns those that have more to flush.
func (f *Flush) release() (again []*Series) {
	t := f.table
	freed := 0
	scarce := t.buffered.Load() > t.config.MaxBytes/4
	for _, s := range f.series {
		s.Lock()
		if s.earlier != nil {
			freed += s.earlier.drop(func(r *row) bool { return !r.pending() })
			if len(s.earlier.pieces) == 0 {
				s.earlier = nil
				freed += listBytes
			}
		}
		c := &s.current
		if scarce && len(c.points) == 0 {
			freed += cap(c.points)
			c.points = nil
		}
		if s.listed = c.pending() || s.earlier != nil; s.listed {
			again = append(again, s)
		} else {
			freed += listedBytes
		}
		idle := s.idle()
		s.Unlock()
		if idle {
			t.flushed(s)
		}
	}
	t.buffered.Add(int64(-freed))
	return again
}
