package memtable

import (
	"math"

	"github.com/promtsd/promtsd/mapping"
)

// Series is what the write path knows of one series: enough to write a sample without a look-up. What every sample
// touches stands first, in as few cache lines as possible. It is made by Table.NewSeries.
type Series struct {
	group *group // has the lock that guards what follows
	// Samples that wait for their flush, in buffered mode.
	current row      // the latest hour
	shard   uint16   // its flush shard, counted from 1; 0: it has none yet
	listed  bool     // the flush shard lists it
	dropped bool     // the table does not hold it
	refs    int32    // of the series cache; guarded by the stripe
	arrived int64    // the arrival time of the latest sample
	earlier *rowList // hours before the current one that have samples; nil: none

	tsuid string

	// Of two cells for one instant the one with the larger cell timestamp counts. So a sample that does not follow the
	// series' latest gets a cell timestamp above all that were given before: runTime is the latest cell timestamp given,
	// runMax the latest sample it was given to.
	runTime int64
	runMax  int64
	// Days whose index row is durable: bit i stands for day lastDay-i. The meta row is durable if any bit is set.
	lastDay  mapping.Day
	nameless bool  // it has no metric name
	slot     uint8 // in the group
	days     uint64
}

// NewSeries returns a series that is not in the table yet; see Retain.
func (t *Table) NewSeries(slot Slot, tsuid string, nameless bool) *Series {
	return &Series{group: slot.group, slot: slot.number, tsuid: tsuid, nameless: nameless}
}

// TSUID is the series' TSUID.
func (s *Series) TSUID() string { return s.tsuid }

// Nameless says that the series has no metric name.
func (s *Series) Nameless() bool { return s.nameless }

// Slot is where samples of the series are staged.
func (s *Series) Slot() Slot { return Slot{s.group, s.slot} }

// CellTime returns the cell timestamp for a sample at t that arrives at now, both in milliseconds since 1970. The
// series must be locked.
func (s *Series) CellTime(t, now int64) int64 {
	switch {
	case now > s.runTime:
		s.runTime, s.runMax = now, t
	case t > s.runMax:
		s.runMax = t
	default:
		s.runTime, s.runMax = s.runTime+1, t
	}
	return s.runTime
}

// LastCellTime is the latest cell timestamp that CellTime returned, or a flush used. The series must be locked.
func (s *Series) LastCellTime() int64 { return s.runTime }

// startAfter makes sure that cell timestamps are above floor: the series may have been known before, and dropped.
func (s *Series) startAfter(floor int64) {
	s.Lock()
	defer s.Unlock()
	if s.runTime < floor {
		s.runTime, s.runMax = floor, math.MaxInt64
	}
}

// Indexed says whether the index row of a day is known to be durable. The series must be locked.
func (s *Series) Indexed(day mapping.Day) bool {
	back := int(s.lastDay) - int(day)
	return back >= 0 && back < 64 && s.days&(1<<back) != 0
}

// InIndex says whether the meta row is known to be durable. The series must be locked.
func (s *Series) InIndex() bool { return s.days != 0 }

// SetIndexed notes that the index rows of a day are durable. Days more than 64 before the latest are forgotten: their
// rows are written again when samples come. The series must be locked.
func (s *Series) SetIndexed(day mapping.Day) {
	back := int(s.lastDay) - int(day)
	if back < 0 || s.days == 0 {
		if s.days != 0 && -back < 64 {
			s.days <<= -back
		} else {
			s.days = 0
		}
		s.lastDay, back = day, 0
	}
	if back < 64 {
		s.days |= 1 << back
	}
}
