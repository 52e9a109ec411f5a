package memtable

import (
	"encoding/binary"
	"sync"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// group is up to 32 series that were seen first in the same request, one after the other. They come together again
// and again: so they share one mutex, and one staging buffer. A series' own memory is far from that of its
// neighbours, and to wait for it is most of what an append costs. Staged samples go there several at a time: when the
// buffer is full, and before anyone looks at a series of the group.
type group struct {
	mu         sync.Mutex
	table      *Table
	staged     []byte
	arrived    int64 // of the latest staged sample
	prefetched byte
	slots      [groupSize]slot
}

// slot is what staging needs to know of a series: Series.refreshSlot fills it in.
type slot struct {
	series *Series // nil: nothing can be staged
	base   uint32  // of the current row
	last   uint32  // the largest offset of its points, staged ones included
}

// Slot is the place of a series in a group. The zero value is none.
type Slot struct {
	group  *group
	number uint8
}

// NextSlot is the slot for a new series: in the group of the series before it, as long as that has room.
func (t *Table) NextSlot(before Slot) Slot {
	if before.group == nil || before.number == groupSize-1 {
		return Slot{group: &group{table: t}}
	}
	return Slot{before.group, before.number + 1}
}

// The staging buffer has one of these after the other. The first is always an arrival; it is the arrival time of the
// points that follow:
//
//	+--------------------+----------------------+        +-----------------+-----------------------------+
//	| arrival: 0xff, 1   | ms since 1970, 8     |   or   | slot number, 1  | point (mapping.AppendPoint) |
//	+--------------------+----------------------+        +-----------------+-----------------------------+
const (
	arrival      = 0xff
	arrivalBytes = 9
	stagingBytes = 2 << 10 // five samples or more of each series

	groupSize = 32
)

// lockNext locks next, and unlocks g before unless it is the same. g may be nil.
func (g *group) lockNext(next *group) *group {
	if g != next {
		g.unlock()
		next.mu.Lock()
	}
	return next
}

// unlock unlocks g, which may be nil.
func (g *group) unlock() {
	if g != nil {
		g.mu.Unlock()
	}
}

// stage copies samples of the series at a slot into the staging buffer, up to the first that does not simply extend the
// current row, and returns how many. g must be locked.
func (g *group) stage(number uint8, samples []request.Sample, arrived int64, admit *request.Admission) (staged int) {
	s := &g.slots[number]
	if s.series == nil {
		return 0
	}
	for i, sample := range samples {
		offset := sample.T - int64(s.base)*1000
		if offset <= int64(s.last) || offset >= mapping.HourMs || !admit.Admits(sample) {
			return i
		}
		if cap(g.staged)-len(g.staged) < arrivalBytes+1+mapping.MaxPointBytes {
			g.unstage()
			g.staged = g.table.buffers.Get().(*[stagingBytes]byte)[:0]
			g.table.buffered.Add(stagingBytes)
		}
		if len(g.staged) == 0 || g.arrived != arrived {
			g.staged = binary.LittleEndian.AppendUint64(append(g.staged, arrival), uint64(arrived))
			g.arrived = arrived
		}
		g.staged = mapping.AppendPoint(append(g.staged, number), uint32(offset), sample.V)
		s.last = uint32(offset)
	}
	return len(samples)
}

// unstage moves the staged samples to the rows of their series. g must be locked.
func (g *group) unstage() {
	if g.staged == nil {
		return
	}
	g.prefetch()
	grown := -stagingBytes
	arrived := int64(0)
	for rest := g.staged; len(rest) > 0; {
		number := rest[0]
		if rest = rest[1:]; number == arrival {
			arrived = int64(binary.LittleEndian.Uint64(rest))
			rest = rest[arrivalBytes-1:]
			continue
		}
		slot, end := &g.slots[number], mapping.PointEnd(rest)
		s := slot.series
		grown += s.current.makeRoom()
		s.current.points = append(s.current.points, rest[:end]...)
		s.current.last = slot.last
		s.arrived = max(s.arrived, arrived)
		rest = rest[end:]
	}
	g.table.buffers.Put((*[stagingBytes]byte)(g.staged[:stagingBytes]))
	g.staged = nil
	g.table.buffered.Add(int64(grown))
}

// prefetch reads what unstage will touch of the series: so the waits for memory overlap. The sum keeps the compiler
// from dropping the reads.
func (g *group) prefetch() {
	for i := range g.slots {
		if s := g.slots[i].series; s != nil {
			g.prefetched += s.current.points[len(s.current.points)-1]
		}
	}
}

// Lock locks the series, and with it all of its group.
func (s *Series) Lock() {
	s.group.mu.Lock()
	s.group.unstage()
}

// Unlock undoes Lock.
func (s *Series) Unlock() {
	s.refreshSlot()
	s.group.mu.Unlock()
}

// refreshSlot fills in the slot of a series after a change. Samples can be staged if the flush shard lists the series
// because of its current row, and the row's day is indexed. s must be locked, with nothing staged.
func (s *Series) refreshSlot() {
	r := &s.current
	if r.open && r.indexed && r.hasUnflushed() {
		s.group.slots[s.slot] = slot{s, r.base, r.last}
	} else {
		s.group.slots[s.slot] = slot{}
	}
}
