package memtable

import (
	"bytes"
	"iter"
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// row is one open hour of one series. Its series' lock guards it.
type row struct {
	points    []byte // a point list (see mapping.AppendPoint), in order of arrival
	flushing  int    // points[:flushing] are on their way into the store
	base      uint32 // base time
	last      uint32 // the largest offset of the points
	open      bool   // base counts
	ascending bool   // the offsets of the points ascend
	indexed   bool   // the index row of its day is durable
	mixed     bool   // there may be native histograms among the points
	cells     uint8  // cells of the row that are known or likely to be in the store, up to 255
}

const (
	firstPoints = 64 // bytes that a row begins with: five points or more
	// MaxCellBytes bounds the points of a cell: some 3,000.
	MaxCellBytes = 32 << 10
	// maxScanBytes bounds the rows that are searched for duplicates, from end to end: some 800 points. In a longer row a
	// duplicate takes memory until the next flush.
	maxScanBytes = 8 << 10
)

// hasUnflushed says whether there are points that no flush has taken yet.
func (r *row) hasUnflushed() bool { return len(r.points) > r.flushing }

// add appends a point, unless it is a duplicate: the latest point at its instant has the same bytes. grown is by how
// many bytes the memory of the row grew.
func (r *row) add(offsetMs uint32, v float64) (grown int, duplicate bool) {
	if len(r.points) > 0 && offsetMs <= r.last {
		var buf [mapping.MaxPointBytes]byte
		return r.addPoint(offsetMs, mapping.AppendPoint(buf[:0], offsetMs, v))
	}
	if len(r.points) == 0 {
		r.ascending = true
	}
	r.last = offsetMs
	grown = r.makeRoom()
	r.points = mapping.AppendPoint(r.points, offsetMs, v)
	return grown, false
}

// makeRoom makes room for one more point, and says by how many bytes the memory of the row grew.
func (r *row) makeRoom() (grown int) {
	before := cap(r.points)
	if before-len(r.points) < mapping.MaxPointBytes {
		// By a quarter, not twice: spare memory of rows is of no use to others until the next flush.
		r.points = slices.Grow(r.points, max(firstPoints, len(r.points)/4))
	}
	return cap(r.points) - before
}

// addPoint is add for a point in the form of a point list.
func (r *row) addPoint(offsetMs uint32, point []byte) (grown int, duplicate bool) {
	if len(r.points) == 0 {
		r.ascending = true
	} else if offsetMs <= r.last {
		if r.has(offsetMs, point) {
			return 0, true
		}
		r.ascending = false
	}
	r.last = max(r.last, offsetMs)
	before := cap(r.points)
	r.points = append(r.points, point...)
	return cap(r.points) - before, false
}

// has says whether the latest point at an offset has the same bytes, where the row is short enough to be searched.
func (r *row) has(offsetMs uint32, point []byte) bool {
	return len(r.points) <= maxScanBytes && bytes.Equal(mapping.FindPoint(r.points, offsetMs), point)
}

// commit removes the points that a flush has taken: they are in the store.
func (r *row) commit() {
	rest := copy(r.points, r.points[r.flushing:])
	r.points, r.flushing = r.points[:rest], 0
	if rest == 0 {
		r.last, r.mixed = 0, false
	}
}

// pending says whether there is anything to flush, or to merge once the hour has ended.
func (r *row) pending() bool { return len(r.points) > 0 || r.cells > 1 }

// rowOf returns the row of a base time, and opens it if need be. startBase is the hour in which the process started:
// its row may have cells from before. grown is by how many bytes the memory of the series grew.
func (s *Series) rowOf(base, startBase uint32) (r *row, grown int) {
	c := &s.current
	switch {
	case c.open && base == c.base:
		return c, 0
	case !c.open || base > c.base:
		fresh := row{base: base, open: true}
		if c.open && c.pending() {
			old := *c
			grown = s.insert(&old)
		} else {
			fresh.points = c.points
		}
		*c = fresh
	default:
		if r := s.earlier.find(base); r != nil {
			return r, 0
		}
		c = &row{base: base, open: true}
		grown = s.insert(c)
	}
	if base == startBase {
		c.cells = 1
	}
	return c, grown
}

// insert puts a row among those before the current one.
func (s *Series) insert(r *row) (grown int) {
	grown = rowBytes
	if s.earlier == nil {
		s.earlier = new(rowList)
		grown += listBytes
	}
	s.earlier.insert(r)
	return grown
}

// find returns the row of a base time, nil if there is none.
func (s *Series) find(base uint32) *row {
	if s.current.open && s.current.base == base {
		return &s.current
	}
	return s.earlier.find(base)
}

// rowsFrom yields the rows from a base time on.
func (s *Series) rowsFrom(base uint32) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for r := range s.earlier.from(base) {
			if !yield(r) {
				return
			}
		}
		if s.current.open && s.current.base >= base {
			yield(&s.current)
		}
	}
}

// idle says that the series has nothing to flush. The series must be locked.
func (s *Series) idle() bool { return s.earlier == nil && len(s.current.points) == 0 && !s.listed }
