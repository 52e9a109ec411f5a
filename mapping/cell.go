package mapping

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
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

// MaxPointBytes is the length of the longest point in a point list.
const MaxPointBytes = msWidth + 8

// AppendPoint appends one point to a point list. offsetMs counts from the row's base time, below HourMs.
func AppendPoint(dst []byte, offsetMs uint32, v float64) []byte {
	at := len(dst)
	dst, flags := AppendValue(append(dst, 0, 0, 0, 0), v)
	binary.BigEndian.PutUint32(dst[at:], msForm|offsetMs<<msShift&msOffsetMask|uint32(flags))
	return dst
}

// FindPoint looks through a point list that AppendPoint made for the last point at an offset, and returns its value
// bytes and flags; nil if there is none.
func FindPoint(points []byte, offsetMs uint32) (value []byte, flags byte) {
	for len(points) >= msWidth {
		q := binary.BigEndian.Uint32(points)
		end := msWidth + int(q&uint32(FlagLengthMask)) + 1
		if q&msOffsetMask>>msShift == offsetMs {
			value, flags = points[msWidth:end], byte(q)&flagsMask
		}
		points = points[end:]
	}
	return value, flags
}

// CutPoints is the length of the longest part at the beginning of a point list that ends between two points and has at
// most so many bytes, but one point at least.
func CutPoints(points []byte, most int) int {
	cut := 0
	for cut+msWidth <= len(points) {
		end := cut + msWidth + int(points[cut+msWidth-1]&FlagLengthMask) + 1
		if end > most && cut > 0 {
			break
		}
		cut = end
	}
	return cut
}

// AppendCell makes a cell of a point list that AppendPoint made with ascending offsets: it appends the cell's qualifier
// to one slice and its value to another.
func AppendCell(qualifier, value, points []byte) (q, v []byte) {
	first := len(qualifier)
	for len(points) >= msWidth {
		end := msWidth + int(points[msWidth-1]&FlagLengthMask) + 1
		qualifier = append(qualifier, points[:msWidth]...)
		value = append(value, points[msWidth:end]...)
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
	width    uint8 // of the qualifier
	size     uint8 // of the value
}

// mergeCell is what decides between points of different cells.
type mergeCell struct {
	timestamp int64
	qualifier []byte
}

// Reset forgets all points.
func (m *CellMerger) Reset() { m.data, m.points, m.cells = m.data[:0], m.points[:0], m.cells[:0] }

// Add takes in a stored cell of points in even-length form: one point, or a compacted cell. The error wraps ErrCorrupt;
// the merger must then be reset: a row with a cell that cannot be read is better left as it is. The qualifier is kept
// until Reset.
func (m *CellMerger) Add(qualifier []byte, timestamp int64, value []byte) error {
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
		return fmt.Errorf("merge cell with qualifier %x: %w: %d bytes behind its values", clip(qualifier), ErrCorrupt, len(value))
	}
	return nil
}

// AddPoints takes in a point list that AppendPoint made. Of two points at an instant the later one in the list counts,
// and both count over points of cells with a smaller timestamp.
func (m *CellMerger) AddPoints(points []byte, timestamp int64) {
	cell := int32(len(m.cells))
	m.cells = append(m.cells, mergeCell{timestamp: timestamp})
	for len(points) >= msWidth {
		q := binary.BigEndian.Uint32(points)
		end := msWidth + int(q&uint32(FlagLengthMask)) + 1
		m.add(q&msOffsetMask>>msShift, cell, points[:msWidth], points[msWidth:end])
		points = points[end:]
	}
}

func (m *CellMerger) add(offsetMs uint32, cell int32, qualifier, value []byte) {
	m.points = append(m.points, mergePoint{
		offsetMs: offsetMs, cell: cell, at: int32(len(m.data)), width: uint8(len(qualifier)), size: uint8(len(value)),
	})
	m.data = append(append(m.data, qualifier...), value...)
}

// AppendCell appends the qualifier and the value of the one cell that all points make.
func (m *CellMerger) AppendCell(qualifier, value []byte) (q, v []byte) {
	ascending := func(i int) bool { return m.points[i-1].offsetMs < m.points[i].offsetMs }
	for i := 1; i < len(m.points); i++ {
		if !ascending(i) {
			slices.SortStableFunc(m.points, m.compare)
			break
		}
	}
	count, seconds, ms := 0, false, false
	for i, p := range m.points {
		if i+1 < len(m.points) && m.points[i+1].offsetMs == p.offsetMs {
			continue
		}
		values := p.at + int32(p.width)
		qualifier = append(qualifier, m.data[p.at:values]...)
		value = append(value, m.data[values:values+int32(p.size)]...)
		count++
		seconds, ms = seconds || p.width == secondsWidth, ms || p.width == msWidth
	}
	if count > 1 {
		value = append(value, mixed(seconds, ms))
	}
	return qualifier, value
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
