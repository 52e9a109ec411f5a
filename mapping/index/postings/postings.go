// Package postings holds series of the index in memory. A Set knows the TSUID of each series, the days on which it was
// active, and for each metric and each tag the list of its series: the postings. Matchers are answered by intersecting
// lists.
//
// Series have numbers from 0 on, in the order in which they came. So every list is made ascending by appending to it,
// and nothing is ever taken out of a Set. What was read from it stays valid and must not be changed; series that are
// added later are not in it.
//
// The package is pure: it knows nothing of stores, contexts and names. UIDs stand for names; whoever needs the texts of
// UIDs asks for the UIDs first, looks them up, and then asks on.
//
// Locks: a Set has one mutex, and every exported method takes it on its own and gives it back before it returns. So a
// Set is safe for concurrent use, and its mutex comes after every lock of its callers. While it is held only the
// function given to ActiveValues is called, which must not wait or call the Set.
package postings

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/promtsd/promtsd/mapping"
)

// Set is a set of series in memory.
type Set struct {
	schema mapping.Schema

	mu       sync.RWMutex // guards what follows
	firstDay int          // the first day that Add takes in
	repeats  bool         // a series has one tag more than once

	// TSUIDs, each after its length in two bytes. A chunk is never moved, so that what was handed out stays valid.
	chunks [][]byte
	at     []uint32 // by number: chunk * chunkBytes + offset

	seed  maphash.Seed
	slots []uint32 // number + 1 of series, by hash, then the next free one; a power of two of them

	spans []DayRun        // by number: from the first to the last day
	days  map[uint32]Days // of those series that were not active on all days of their span

	leftOut map[mapping.UID]bool // metrics of which series are missing, for want of room
	metrics lists
	tags    map[mapping.UID]*lists // by tagk
	parsed  []mapping.Tag
}

// lists are the postings of one tagk by tagv, or those of all metrics.
type lists struct {
	values []mapping.UID // in the order in which they came
	series map[mapping.UID][]uint32
}

func newLists() lists { return lists{series: make(map[mapping.UID][]uint32)} }

// add appends a series to the list of a value. A foreign series may have one tag more than once.
func (l *lists) add(value mapping.UID, number uint32) {
	list := l.series[value]
	switch {
	case list == nil:
		l.know(value)
	case list[len(list)-1] == number:
		return
	}
	l.series[value] = append(list, number)
}

// know takes in a value without series.
func (l *lists) know(value mapping.UID) {
	if _, known := l.series[value]; !known {
		l.values = append(l.values, value)
		l.series[value] = nil
	}
}

const (
	chunkBytes = 1 << 16 // above the length of any TSUID, which is a part of a row key
	maxChunks  = 1 << 16

	// MaxLeftOut bounds the metrics that are left out.
	MaxLeftOut = 1 << 16
)

// New returns an empty Set.
func New(schema mapping.Schema) *Set {
	return &Set{
		schema: schema, seed: maphash.MakeSeed(), slots: make([]uint32, 1024), days: make(map[uint32]Days),
		leftOut: make(map[mapping.UID]bool), metrics: newLists(), tags: make(map[mapping.UID]*lists),
	}
}

// Len is how many series there are.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.at)
}

// Add notes that a series was active on a day. A malformed TSUID is passed over: nothing can be called by it. So are
// series of metrics that are left out. It returns false, and does nothing, where the series is new and there are max
// series.
func (s *Set) Add(tsuid []byte, day mapping.Day, max int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(tsuid, day, max)
}

// AddAll is Add of some series, whose TSUIDs stand end to end in tsuids and end at ends. It stops where Add returns
// false.
func (s *Set) AddAll(tsuids []byte, ends []int, day mapping.Day, max int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := 0
	for _, end := range ends {
		if !s.add(tsuids[start:end], day, max) {
			return false
		}
		start = end
	}
	return true
}

func (s *Set) add(tsuid []byte, day mapping.Day, max int) bool {
	if int(day) < s.firstDay {
		return true
	}
	i := s.slot(tsuid)
	if n := s.slots[i]; n != 0 {
		s.setActive(n-1, day)
		return true
	}
	metric, tags, err := s.schema.ParseTSUID(tsuid, s.parsed[:0])
	s.parsed = tags
	if err != nil || len(tsuid) > chunkBytes-2 || s.leftOut[metric] {
		return true
	}
	if len(s.at) >= max || len(s.chunks) == maxChunks {
		return false
	}
	number := uint32(len(s.at))
	s.at = append(s.at, s.appendTSUID(tsuid))
	s.spans = append(s.spans, DayRun{day, day})
	s.slots[i] = number + 1
	s.metrics.add(metric, number)
	for i, t := range tags {
		s.repeats = s.repeats || i > 0 && tags[i-1].Key == t.Key
		l := s.tags[t.Key]
		if l == nil {
			l = new(lists)
			*l = newLists()
			s.tags[t.Key] = l
		}
		l.add(t.Value, number)
	}
	if len(s.at) > len(s.slots)/4*3 {
		s.grow()
	}
	return true
}

// IgnoreBefore says that Add need not take in days before one: nobody will ask for them.
func (s *Set) IgnoreBefore(day int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firstDay = day
}

// LeaveOut leaves the new series of a metric out from now on. False says that too many metrics are left out.
func (s *Set) LeaveOut(metric mapping.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leftOut) >= MaxLeftOut {
		return false
	}
	s.leftOut[metric] = true
	s.metrics.know(metric) // so that it is still found by its name
	return true
}

// LeftOut is how many metrics are left out.
func (s *Set) LeftOut() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.leftOut)
}

// Lacks says whether series may be missing of some metrics, nil: of any.
func (s *Set) Lacks(metrics []mapping.UID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if metrics == nil {
		return len(s.leftOut) > 0
	}
	return len(s.leftOut) > 0 && slices.ContainsFunc(metrics, func(u mapping.UID) bool { return s.leftOut[u] })
}

// tsuid is that of a series.
func (s *Set) tsuid(number uint32) []byte {
	chunk, at := s.chunks[s.at[number]/chunkBytes], s.at[number]%chunkBytes
	n := uint32(binary.BigEndian.Uint16(chunk[at:]))
	return chunk[at+2 : at+2+n : at+2+n]
}

// slot is where a series stands in slots, or is to stand.
func (s *Set) slot(tsuid []byte) int {
	mask := len(s.slots) - 1
	i := int(maphash.Bytes(s.seed, tsuid)) & mask
	for s.slots[i] != 0 && string(s.tsuid(s.slots[i]-1)) != string(tsuid) {
		i = (i + 1) & mask
	}
	return i
}

func (s *Set) appendTSUID(tsuid []byte) (at uint32) {
	last := len(s.chunks) - 1
	if last < 0 || cap(s.chunks[last])-len(s.chunks[last]) < len(tsuid)+2 {
		s.chunks = append(s.chunks, make([]byte, 0, chunkBytes))
		last++
	}
	at = uint32(last*chunkBytes + len(s.chunks[last]))
	s.chunks[last] = binary.BigEndian.AppendUint16(s.chunks[last], uint16(len(tsuid)))
	s.chunks[last] = append(s.chunks[last], tsuid...)
	return at
}

func (s *Set) grow() {
	s.slots = make([]uint32, 2*len(s.slots))
	for n := range s.at {
		s.slots[s.slot(s.tsuid(uint32(n)))] = uint32(n) + 1
	}
}
