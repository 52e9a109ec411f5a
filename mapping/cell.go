package mapping

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Point lists are how points wait in memory to become a cell: the value of an OpenTSDB append cell, (qualifier, value)
// again and again, here always with qualifiers in milliseconds:
//
//	+------------------+-------------+------------------+-------------+
//	| qualifier, 4     | value, 1..8 | qualifier, 4     | value, 1..8 | ...
//	+------------------+-------------+------------------+-------------+
//
// A multi-point cell has the same bytes in another order: all qualifiers make its qualifier, all values and a last zero
// byte its value. To OpenTSDB it is a compacted cell; a row may have many of them.
//
// A native histogram in a point list has a reserved bit of its qualifier set:
//
//	+----------------------------+----------------+-----------+
//	| qualifier with bit 0x20, 4 | uvarint length | histogram |
//	+----------------------------+----------------+-----------+

// MaxPointBytes is the length of the longest point in a point list that is no histogram.
const MaxPointBytes = msWidth + 8

// listHistogram marks a native histogram in a point list.
const listHistogram = 0x20

// isListed says whether the first point of a list is a native histogram.
func isListed(points []byte) bool { return points[msWidth-1]&listHistogram != 0 }

// PointEnd is where the first point of a list of four bytes or more ends: beyond the end of a list that is cut.
func PointEnd(points []byte) int {
	if last := points[msWidth-1]; last&listHistogram == 0 {
		return int(last&FlagLengthMask) + msWidth + 1
	}
	return listedEnd(points)
}

func listedEnd(points []byte) int {
	size, n := binary.Uvarint(points[msWidth:])
	if n <= 0 || size > MaxHistogramBytes {
		return math.MaxInt
	}
	return msWidth + n + int(size)
}

// AppendPoint appends one point to a point list. offsetMs counts from the row's base time, below HourMs.
func AppendPoint(dst []byte, offsetMs uint32, v float64) []byte {
	at := len(dst)
	dst, flags := AppendValue(append(dst, 0, 0, 0, 0), v)
	binary.BigEndian.PutUint32(dst[at:], msForm|offsetMs<<msShift&msOffsetMask|uint32(flags))
	return dst
}

// FindPoint looks through a point list for the last point at an offset, and returns its bytes; nil if there is none.
func FindPoint(points []byte, offsetMs uint32) (point []byte) {
	for len(points) >= msWidth {
		end := PointEnd(points)
		if binary.BigEndian.Uint32(points)&msOffsetMask>>msShift == offsetMs {
			point = points[:end]
		}
		points = points[end:]
	}
	return point
}

// CutPoints is the length of the longest part at the beginning of a point list that ends between two points and has at
// most so many bytes, but one point at least.
func CutPoints(points []byte, most int) int {
	cut := 0
	for cut+msWidth <= len(points) {
		end := cut + PointEnd(points[cut:])
		if end > most && cut > 0 {
			break
		}
		cut = end
	}
	return cut
}

// AppendCell makes a cell of the points of a list that is in ascending order: it appends the cell's qualifier to one
// slice and its value to another. Histograms are left out; without other points it appends nothing.
func AppendCell(qualifier, value, points []byte) (q, v []byte) {
	first := len(qualifier)
	qualifier, value = slices.Grow(qualifier, len(points)), slices.Grow(value, len(points)+1)
	for len(points) >= msWidth {
		end := PointEnd(points)
		if !isListed(points) {
			at := len(value)
			qualifier = append(qualifier, points[0], points[1], points[2], points[3])
			if len(points) >= MaxPointBytes { // eight bytes cost less than a few; what is too much of them is cut off again
				value = append(value, points[msWidth:MaxPointBytes]...)[:at+end-msWidth]
			} else {
				value = append(value, points[msWidth:end]...)
			}
		}
		points = points[end:]
	}
	if len(qualifier)-first > msWidth {
		value = append(value, 0)
	}
	return qualifier, value
}

// CellMerger makes one cell of all the points of a row, or of a point list that is out of order. Where points share an
// instant, one is left, by RowDecoder's rules. The points keep their bytes, so an integer of OpenTSDB's that no float64
// can hold survives. The zero value is ready; it is used again by Reset and is not for concurrent use.
type CellMerger struct {
	data   []byte // points: qualifiers and values as they came
	points []mergePoint
	cells  []mergeCell
}

// mergePoint is a point; data[at:] are its qualifier and value.
type mergePoint struct {
	offsetMs uint32
	cell     int32
	at       int32
	size     uint32 // of the value
	width    uint8  // of the qualifier; 0: a histogram, whose qualifier is not in data
}

// mergeCell is what decides between points of different cells.
type mergeCell struct {
	timestamp int64
	qualifier []byte
}

// Reset forgets all points.
func (m *CellMerger) Reset() { m.data, m.points, m.cells = m.data[:0], m.points[:0], m.cells[:0] }

// Add takes in a stored cell of points in even-length form, one point or a compacted cell, or a native histogram. The
// error wraps ErrCorrupt; the merger must then be reset: a row with a cell that cannot be read is better left as it is.
// The qualifier is kept until Reset.
func (m *CellMerger) Add(qualifier []byte, timestamp int64, value []byte) error {
	if IsHistogramCell(qualifier) {
		m.cells = append(m.cells, mergeCell{timestamp, qualifier})
		m.add(histogramOffset(qualifier), int32(len(m.cells)-1), nil, value)
		return nil
	}
	if len(qualifier) == 0 || len(qualifier)%2 != 0 {
		return fmt.Errorf("merge cell with qualifier %x: %w: no cell of points", clip(qualifier), ErrCorrupt)
	}
	cell := int32(len(m.cells))
	m.cells = append(m.cells, mergeCell{timestamp, qualifier})
	for rest := qualifier; len(rest) > 0; {
		offset, flags, width, err := ParseQualifier(rest)
		if err == nil {
			_, _, err = readValue(value, flags)
		}
		if err != nil {
			return fmt.Errorf("merge cell with qualifier %x: %w", clip(qualifier), err)
		}
		size := int(flags&FlagLengthMask) + 1
		m.add(offset, cell, rest[:width], value[:size])
		rest, value = rest[width:], value[size:]
	}
	// One point has no byte after its value, several have one. Anything else is a bug of an old writer, which RowDecoder
	// knows how to read.
	single := len(qualifier) == secondsWidth || len(qualifier) == msWidth && isMs(qualifier[0])
	if single && len(value) > 0 || len(value) > 1 {
		return fmt.Errorf("merge cell with qualifier %x: %w: %d bytes behind its values", clip(qualifier), ErrCorrupt,
			len(value))
	}
	return nil
}

// AddPoints takes in a point list. Of two points at an instant the later one in the list counts, and both count over
// points of cells with a smaller timestamp.
func (m *CellMerger) AddPoints(points []byte, timestamp int64) {
	cell := int32(len(m.cells))
	m.cells = append(m.cells, mergeCell{timestamp: timestamp})
	for len(points) >= msWidth {
		end := PointEnd(points)
		qualifier, value := points[:msWidth], points[msWidth:end]
		if isListed(points) {
			from, to, err := cutHistogram(value)
			if err != nil {
				panic("mapping: a point list that nobody made") // it was checked when it was made
			}
			qualifier, value = nil, value[from:to]
		}
		m.add(binary.BigEndian.Uint32(points)&msOffsetMask>>msShift, cell, qualifier, value)
		points = points[end:]
	}
}

func (m *CellMerger) add(offsetMs uint32, cell int32, qualifier, value []byte) {
	m.points = append(m.points, mergePoint{
		offsetMs: offsetMs, cell: cell, at: int32(len(m.data)), width: uint8(len(qualifier)), size: uint32(len(value)),
	})
	m.data = append(append(m.data, qualifier...), value...)
}

// AppendCell appends the qualifier and the value of the one cell that all points make, histograms left out: nothing if
// there are no others.
func (m *CellMerger) AppendCell(qualifier, value []byte) (q, v []byte) {
	m.normalize()
	seconds, ms := 0, 0
	for _, p := range m.points {
		if p.width == 0 {
			continue
		}
		values := p.at + int32(p.width)
		qualifier = append(qualifier, m.data[p.at:values]...)
		value = append(value, m.data[values:values+int32(p.size)]...)
		if p.width == secondsWidth {
			seconds++
		} else {
			ms++
		}
	}
	if seconds+ms > 1 {
		value = append(value, mixed(seconds > 0, ms > 0))
	}
	return qualifier, value
}

// Histograms yields the offset and the value of each native histogram that came in a point list, after numbers and
// other histograms of its instant gave way to it.
func (m *CellMerger) Histograms() iter.Seq2[uint32, []byte] {
	m.normalize()
	return func(yield func(uint32, []byte) bool) {
		for _, p := range m.points {
			if p.width == 0 && m.cells[p.cell].qualifier == nil && !yield(p.offsetMs, m.data[p.at:p.at+int32(p.size)]) {
				return
			}
		}
	}
}

// HasHistogram says whether a native histogram is what is left at the instant of a histogram cell.
func (m *CellMerger) HasHistogram(qualifier []byte) bool {
	m.normalize()
	i, found := slices.BinarySearchFunc(m.points, histogramOffset(qualifier), func(p mergePoint, offset uint32) int {
		return cmp.Compare(p.offsetMs, offset)
	})
	return found && m.points[i].width == 0
}

// normalize brings the points into order and leaves one for each instant.
func (m *CellMerger) normalize() {
	ascending := func(i int) bool { return m.points[i-1].offsetMs < m.points[i].offsetMs }
	for i := 1; i < len(m.points); i++ {
		if !ascending(i) {
			slices.SortStableFunc(m.points, m.compare)
			break
		}
	}
	kept := m.points[:0]
	for i, p := range m.points {
		if i+1 == len(m.points) || m.points[i+1].offsetMs != p.offsetMs {
			kept = append(kept, p)
		}
	}
	m.points = kept
}

// mixed is the last byte of a compacted cell's value.
func mixed(seconds, ms bool) byte {
	if seconds && ms {
		return 1
	}
	return 0
}

// compare orders points by time, and those of an instant so that the one to keep comes last.
func (m *CellMerger) compare(a, b mergePoint) int {
	if a.offsetMs != b.offsetMs || a.cell == b.cell {
		return cmp.Compare(a.offsetMs, b.offsetMs)
	}
	x, y := &m.cells[a.cell], &m.cells[b.cell]
	return cmp.Or(cmp.Compare(x.timestamp, y.timestamp), bytes.Compare(x.qualifier, y.qualifier))
}
