package ingest

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// lot is up to 32 series that came first in the same request, one after the other. They come together again and again,
// so one lock is taken for all, and their samples go into one piece of memory at first: the memory of each series is
// far from that of the others, and to wait for it is most of what placing a sample there costs. The samples get there,
// several at a time, when the piece is full, and before anyone looks at one of the series.
type lot struct {
	mu      sync.Mutex
	table   *table
	staged  []byte
	arrived int64 // when the latest of staged came
	warmed  byte
	seats   [neighbours]seat
}

// seat is what must be known of a series to stage a sample of it: series.sit fills it in.
type seat struct {
	series *series // nil: none can be staged
	base   uint32  // of the current row
	last   uint32  // the largest offset of its points, staged ones included
}

// seatOf says which place in which lot a series has.
type seatOf struct {
	lot    *lot
	number uint8
}

// What is staged is one of these after the other; the first is always an arrival, which counts for the points that
// follow:
//
//	+--------------------+----------------------+        +-------------------+-----------------------------+
//	| arrival: 0xff, 1   | ms since 1970, 8     |   or   | number of seat, 1 | point (mapping.AppendPoint) |
//	+--------------------+----------------------+        +-------------------+-----------------------------+
const (
	arrival      = 0xff
	arrivalBytes = 9
	stagedBytes  = 2 << 10 // five samples or more of each series

	neighbours = 32 // series in a lot, at most
)

// lockNext locks next, and unlocks l before unless it is the same. l may be nil.
func (l *lot) lockNext(next *lot) *lot {
	if l != next {
		l.unlock()
		next.mu.Lock()
	}
	return next
}

// unlock unlocks l, which may be nil.
func (l *lot) unlock() {
	if l != nil {
		l.mu.Unlock()
	}
}

// stage takes samples of the series on a seat, up to the first that is not just the next one of the current row, and
// says how many. l must be locked.
func (l *lot) stage(number uint8, samples []request.Sample, t *terms) (taken int) {
	s := &l.seats[number]
	if s.series == nil {
		return 0
	}
	for i, sample := range samples {
		offset := sample.T - int64(s.base)*1000
		if offset <= int64(s.last) || offset >= mapping.HourMs || sample.T > t.latest ||
			t.limits.RefuseInfinities && math.IsInf(sample.V, 0) {
			return i
		}
		if cap(l.staged)-len(l.staged) < arrivalBytes+1+mapping.MaxPointBytes {
			l.settle()
			l.staged = l.table.pieces.Get().(*[stagedBytes]byte)[:0]
			l.table.held.Add(stagedBytes)
		}
		if len(l.staged) == 0 || l.arrived != t.now {
			l.staged = binary.LittleEndian.AppendUint64(append(l.staged, arrival), uint64(t.now))
			l.arrived = t.now
		}
		l.staged = mapping.AppendPoint(append(l.staged, number), uint32(offset), sample.V)
		s.last = uint32(offset)
	}
	return len(samples)
}

// settle brings the staged samples to their series. l must be locked.
func (l *lot) settle() {
	if l.staged == nil {
		return
	}
	l.warm()
	grown := -stagedBytes
	arrived := int64(0)
	for rest := l.staged; len(rest) > 0; {
		number := rest[0]
		if rest = rest[1:]; number == arrival {
			arrived = int64(binary.LittleEndian.Uint64(rest))
			rest = rest[arrivalBytes-1:]
			continue
		}
		seat, end := &l.seats[number], mapping.PointEnd(rest)
		s := seat.series
		grown += s.current.makeRoom()
		s.current.points = append(s.current.points, rest[:end]...)
		s.current.last = seat.last
		s.arrived = max(s.arrived, arrived)
		rest = rest[end:]
	}
	l.table.pieces.Put((*[stagedBytes]byte)(l.staged[:stagedBytes]))
	l.staged = nil
	l.table.held.Add(int64(grown))
}

// warm reads what settle will touch of the series: so the waits for memory overlap, instead of standing in a row. The
// sum is there for the compiler, which would else find the reading useless.
func (l *lot) warm() {
	for i := range l.seats {
		if s := l.seats[i].series; s != nil {
			l.warmed += s.current.points[len(s.current.points)-1]
		}
	}
}

// lock locks a series, and all of its lot.
func (s *series) lock() {
	s.lot.mu.Lock()
	s.lot.settle()
}

// unlock undoes lock.
func (s *series) unlock() {
	s.sit()
	s.lot.mu.Unlock()
}

// sit fills the seat of a series in, after what it says may have changed. Samples can be staged if the bucket lists the
// series because of its current row, and the index finds it. s must be locked, with nothing staged.
func (s *series) sit() {
	r := &s.current
	if r.open && r.indexed && r.waiting() {
		s.lot.seats[s.number] = seat{s, r.base, r.last}
	} else {
		s.lot.seats[s.number] = seat{}
	}
}
