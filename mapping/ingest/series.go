package ingest

import (
	"math"

	"github.com/promtsd/promtsd/mapping"
)

// series is what the write path knows of one series: enough to write a sample without looking anything up. What every
// sample touches stands first, in as few cache lines as can be.
type series struct {
	lot *lot // has the lock that guards what follows
	// Points that wait for their flush, on the journal road.
	current openRow  // the latest hour
	bucket  uint16   // by which bucket it is flushed
	member  bool     // the bucket lists it
	dropped bool     // the table does not hold it
	refs    int32    // label bytes in the cache; guarded by the table
	arrived int64    // the clock when the latest point came
	earlier *rowList // hours before the current one that have points; nil: none

	tsuid string

	// Cell timestamps. Of two cells for one instant the one with the larger timestamp counts, so a sample that does
	// not follow the series' latest gets a cell timestamp above all that were given before: runTime is the latest
	// cell timestamp given, runMax the latest sample it was given to.
	runTime int64
	runMax  int64
	// Days whose index row is durable: bit i stands for day lastDay-i. The meta row is durable if any bit is set.
	lastDay  mapping.Day
	nameless bool  // it has no metric name
	number   uint8 // of its seat in the lot
	days     uint64
}

// cellTime returns the cell timestamp for a sample at t; now is the clock. The series must be locked.
func (s *series) cellTime(t, now int64) int64 {
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

// startAfter makes sure that cell timestamps are above floor: the series may have been known before, and forgotten.
func (s *series) startAfter(floor int64) {
	s.lock()
	defer s.unlock()
	if s.runTime < floor {
		s.runTime, s.runMax = floor, math.MaxInt64
	}
}

// indexed says whether the index is known to hold the series on a day. The series must be locked.
func (s *series) indexed(day mapping.Day) bool {
	back := int(s.lastDay) - int(day)
	return back >= 0 && back < 64 && s.days&(1<<back) != 0
}

// setIndexed notes that the index rows for a day are durable. Days longer ago than 64 days before the latest one are
// forgotten, and written again when they come. The series must be locked.
func (s *series) setIndexed(day mapping.Day) {
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
