package index

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// shelf is a set of series in memory, for each the days on which it was active. Series have numbers from 0 on, in the
// order in which they came, so that every list of numbers below is made ascending by appending to it. Nothing is ever
// taken out. Its Memory's mutex guards it.
type shelf struct {
	schema mapping.Schema

	from   int  // the first day from which on all series are here; never while there is none
	opened int  // the first day of which series are taken
	spoilt bool // series are missing, and it is not known which
	double bool // a series has one tag more than once

	// TSUIDs, each after its length in two bytes. A chunk is never moved, so that what was handed out stays valid.
	slab [][]byte
	at   []uint32 // by number: chunk * chunkBytes + offset

	seed  maphash.Seed
	slots []uint32 // number + 1 of series, by hash, then the next free one; a power of two of them

	spans []DayRun            // by number: from the first to the last day
	runs  map[uint32][]DayRun // the days of those series that were not active on all days of their span

	left    map[mapping.UID]bool // metrics of which series are missing, for want of room
	metrics map[mapping.UID][]uint32
	tags    map[mapping.UID]map[mapping.UID][]uint32 // by tagk, then tagv
	parsed  []mapping.Tag
}

const (
	chunkBytes = 1 << 16 // above the length of any TSUID, which is a part of a row key
	maxChunks  = 1 << 16
)

func newShelf(schema mapping.Schema) *shelf {
	return &shelf{
		schema: schema, from: never, seed: maphash.MakeSeed(), slots: make([]uint32, 1024),
		runs: make(map[uint32][]DayRun), left: make(map[mapping.UID]bool), metrics: make(map[mapping.UID][]uint32),
		tags: make(map[mapping.UID]map[mapping.UID][]uint32),
	}
}

// never is after every Day.
const never = 1 << 16

func (s *shelf) len() int { return len(s.at) }

// tsuid is that of a series; it stays valid and must not be changed.
func (s *shelf) tsuid(number uint32) []byte {
	chunk, at := s.slab[s.at[number]/chunkBytes], s.at[number]%chunkBytes
	n := uint32(binary.BigEndian.Uint16(chunk[at:]))
	return chunk[at+2 : at+2+n : at+2+n]
}

// slot is where a series stands in slots, or is to stand.
func (s *shelf) slot(tsuid []byte) int {
	mask := len(s.slots) - 1
	i := int(maphash.Bytes(s.seed, tsuid)) & mask
	for s.slots[i] != 0 && string(s.tsuid(s.slots[i]-1)) != string(tsuid) {
		i = (i + 1) & mask
	}
	return i
}

// add notes that a series was active on a day. A malformed TSUID is passed over: nothing can be called by it. Beyond
// max series nothing is added; false says so, but where the metric is left out.
func (s *shelf) add(tsuid []byte, day mapping.Day, max int) bool {
	if int(day) < s.opened {
		return true
	}
	i := s.slot(tsuid)
	if n := s.slots[i]; n != 0 {
		s.setActive(n-1, day)
		return true
	}
	metric, tags, err := s.schema.ParseTSUID(tsuid, s.parsed[:0])
	s.parsed = tags
	if err != nil || len(tsuid) > chunkBytes-2 {
		return true
	}
	if s.left[metric] {
		return true
	}
	if s.len() >= max || len(s.slab) == maxChunks {
		return false
	}
	number := uint32(s.len())
	s.at = append(s.at, s.keep(tsuid))
	s.spans = append(s.spans, DayRun{day, day})
	s.slots[i] = number + 1
	s.metrics[metric] = append(s.metrics[metric], number)
	for i, t := range tags {
		s.double = s.double || i > 0 && tags[i-1].Key == t.Key
		values := s.tags[t.Key]
		if values == nil {
			values = make(map[mapping.UID][]uint32)
			s.tags[t.Key] = values
		}
		// A foreign series may have one tag more than once.
		if list := values[t.Value]; len(list) == 0 || list[len(list)-1] != number {
			values[t.Value] = append(list, number)
		}
	}
	if s.len() > len(s.slots)/4*3 {
		s.grow()
	}
	return true
}

// maxLeft bounds the metrics that are left out.
const maxLeft = 1 << 16

// leave leaves a metric out from now on; false is that too many are.
func (s *shelf) leave(metric mapping.UID) bool {
	if len(s.left) >= maxLeft {
		return false
	}
	s.left[metric] = true
	if _, known := s.metrics[metric]; !known {
		s.metrics[metric] = nil // its name can still be found
	}
	return true
}

// lacks says whether series may be missing of some metrics, nil: of all.
func (s *shelf) lacks(metrics []mapping.UID) bool {
	if metrics == nil {
		return len(s.left) > 0
	}
	return len(s.left) > 0 && slices.ContainsFunc(metrics, func(u mapping.UID) bool { return s.left[u] })
}

func (s *shelf) keep(tsuid []byte) (at uint32) {
	last := len(s.slab) - 1
	if last < 0 || cap(s.slab[last])-len(s.slab[last]) < len(tsuid)+2 {
		s.slab = append(s.slab, make([]byte, 0, chunkBytes))
		last++
	}
	at = uint32(last*chunkBytes + len(s.slab[last]))
	s.slab[last] = binary.BigEndian.AppendUint16(s.slab[last], uint16(len(tsuid)))
	s.slab[last] = append(s.slab[last], tsuid...)
	return at
}

func (s *shelf) grow() {
	s.slots = make([]uint32, 2*len(s.slots))
	for n := range s.at {
		s.slots[s.slot(s.tsuid(uint32(n)))] = uint32(n) + 1
	}
}

// setActive notes that a series was active on a day.
func (s *shelf) setActive(number uint32, day mapping.Day) {
	span := &s.spans[number]
	runs, several := s.runs[number]
	switch {
	case several:
	case day >= span.First && day <= span.Last:
		return
	case int(day) == int(span.Last)+1:
		span.Last = day
		return
	case int(day)+1 == int(span.First):
		span.First = day
		return
	default:
		runs = []DayRun{*span}
	}
	runs = withDay(runs, day)
	*span = DayRun{runs[0].First, runs[len(runs)-1].Last}
	if len(runs) > 1 {
		s.runs[number] = runs
	} else {
		delete(s.runs, number)
	}
}

// active says whether a series was active on a day from first to last.
func (s *shelf) active(number uint32, first, last mapping.Day) bool {
	span := s.spans[number]
	if span.Last < first || span.First > last {
		return false
	}
	if span.First >= first || span.Last <= last || len(s.runs) == 0 {
		return true // one end of the span is within, and is a day on which it was active
	}
	runs, several := s.runs[number]
	return !several || Days(runs).overlap(first, last)
}

// appendDays appends the days of a series from first to last.
func (s *shelf) appendDays(dst []DayRun, number uint32, first, last mapping.Day) []DayRun {
	runs, several := s.runs[number]
	if !several {
		runs = s.spans[number : number+1]
	}
	for _, r := range runs {
		if r.Last >= first && r.First <= last {
			dst = append(dst, DayRun{max(r.First, first), min(r.Last, last)})
		}
	}
	return dst
}

// values are the tagvs that the series have for one tagk.
func (s *shelf) values(dst []mapping.UID, key mapping.UID) []mapping.UID {
	dst = slices.Grow(dst, len(s.tags[key]))
	for v := range s.tags[key] {
		dst = append(dst, v)
	}
	return dst
}

// postings are the lists of series by value, of some tagks, or of the metrics where keys is nil, and how many there
// are.
func (s *shelf) postings(keys []mapping.UID) (lists []map[mapping.UID][]uint32, n int) {
	if keys == nil {
		return []map[mapping.UID][]uint32{s.metrics}, len(s.metrics)
	}
	for _, key := range keys {
		lists = append(lists, s.tags[key])
		n += len(s.tags[key])
	}
	return lists, n
}
