package mapping

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// RowDecoder turns the cells of one data row into points. It knows every form of cell that OpenTSDB 2.4 writes there,
// by the length of the qualifier and its first byte:
//
//	2, or 4 with first nibble f   one point
//	other even lengths            many points: their qualifiers, end to end; the value is their values, end to end,
//	                              and a last byte, which is not looked at: OpenTSDB can write a wrong one, or none
//	3, first byte 05              many points: the value is (qualifier, value) again and again
//	odd, first byte 01            annotation
//	odd, first byte 06            histogram of OpenTSDB's
//	5, first bytes 48 and f.      native histogram of promtsd's, see Histogram
//	other odd lengths             unknown, and ignored by OpenTSDB too
//
// Where points share a millisecond, one is left: that of the cell with the largest timestamp; among cells of one
// timestamp, that of the largest qualifier; inside a cell, the last.
//
// A RowDecoder is used again by Reset and allocates only to grow. It keeps none of the bytes it is given. It is not for
// concurrent use. The zero value is ready for a row of base time 0.
type RowDecoder struct {
	baseMs  int64
	points  Points // as they stand in the cells, a cell's points together
	cells   []decodedCell
	names   []byte // qualifiers of cells, end to end
	skipped Skipped
	inOrder bool // not used while there are no points
	sorted  Points
	order   rowOrder
}

// decodedCell is a cell that has points: those from first up to the first of the next cell.
type decodedCell struct {
	timestamp int64
	first     int // index into points
	name      int // index into names, up to that of the next cell
}

// Skipped counts the cells of a row that hold no points.
type Skipped struct {
	Annotations int // notes on the series
	Histograms  int // OpenTSDB's histograms
	Unknown     int // odd-length qualifiers without a meaning in a data table, rollups among them
}

// Reset forgets all cells and makes d ready for a row of the given base time in seconds.
func (d *RowDecoder) Reset(base uint32) {
	d.baseMs = int64(base) * 1000
	d.points.Reset()
	d.cells, d.names = d.cells[:0], d.names[:0]
	d.skipped = Skipped{}
}

// Len is the number of points taken in, of which AppendPoints may append fewer.
func (d *RowDecoder) Len() int { return d.points.Len() }

// Skipped counts the cells added since Reset that hold no points.
func (d *RowDecoder) Skipped() Skipped { return d.skipped }

// Add takes one cell of the row in; timestamp is that of the store. Cells may come in any order. The error wraps
// ErrCorrupt and names the qualifier; then nothing of this cell is taken in, and d can be used on.
func (d *RowDecoder) Add(qualifier []byte, timestamp int64, value []byte) error {
	first := d.begin()
	var err error
	switch n := len(qualifier); {
	case n == msWidth && isMs(qualifier[0]):
		err = d.addMs(qualifier, value)
	case n == secondsWidth && !isMs(qualifier[0]):
		err = d.addSeconds(qualifier, value)
	case n == 0:
		err = fmt.Errorf("%w: empty qualifier", ErrCorrupt)
	case n%2 == 0:
		err = d.addCompacted(qualifier, value)
	default:
		err = d.addOdd(qualifier, value)
	}
	if err != nil {
		d.points.truncate(first)
		return fmt.Errorf("read cell with qualifier %x: %w", clip(qualifier), err)
	}
	d.end(first, qualifier, timestamp)
	return nil
}

// AddPoints takes in a point list (see AppendPoint), as if it were a cell with a timestamp. The error wraps ErrCorrupt;
// then nothing of the list is taken in.
func (d *RowDecoder) AddPoints(points []byte, timestamp int64) error {
	first := d.begin()
	points = points[d.addListed(points):]
	for len(points) > 0 {
		end := math.MaxInt
		if len(points) >= msWidth {
			end = PointEnd(points)
		}
		if end > len(points) {
			d.points.truncate(first)
			return fmt.Errorf("read point list: %w: it ends early", ErrCorrupt)
		}
		q := binary.BigEndian.Uint32(points)
		offset := q & msOffsetMask >> msShift
		var err error
		if isListed(points) {
			var from, to int
			if from, to, err = cutHistogram(points[msWidth:end]); err == nil {
				err = d.addHistogram(offset, points[msWidth+from:msWidth+to])
			}
		} else {
			var v float64
			v, _, err = readValue(points[msWidth:end], byte(q)&flagsMask)
			d.addPoint(offset, v)
		}
		if err != nil {
			d.points.truncate(first)
			return fmt.Errorf("read point list: %w", err)
		}
		points = points[end:]
	}
	d.end(first, nil, timestamp)
	return nil
}

// begin prepares for a cell, and returns the position of its first point.
func (d *RowDecoder) begin() (first int) {
	first = len(d.points.T)
	if first == 0 {
		d.inOrder = true
	}
	return first
}

// end notes a cell, if it has points.
func (d *RowDecoder) end(first int, qualifier []byte, timestamp int64) {
	if len(d.points.T) > first {
		d.cells = append(d.cells, decodedCell{timestamp: timestamp, first: first, name: len(d.names)})
		d.names = append(d.names, qualifier...)
	}
}

func (d *RowDecoder) addPoint(offsetMs uint32, v float64) {
	d.points.Append(d.timeOf(offsetMs), v)
}

// timeOf is the time of the next point.
func (d *RowDecoder) timeOf(offsetMs uint32) int64 {
	t := d.baseMs + int64(offsetMs)
	if n := len(d.points.T); n > 0 && t <= d.points.T[n-1] {
		d.inOrder = false
	}
	return t
}

// addMs takes the value's length from the flags, as OpenTSDB does for this form: more bytes are not looked at.
func (d *RowDecoder) addMs(qualifier, value []byte) error {
	q := binary.BigEndian.Uint32(qualifier)
	v, _, err := readValue(value, byte(q)&flagsMask)
	if err != nil {
		return err
	}
	d.addPoint(q&msOffsetMask>>msShift, v)
	return nil
}

// addSeconds takes the value's length from the value, as OpenTSDB does for this form, because old versions wrote wrong
// flags: in the one case where that leaves a doubt, a float on 4 bytes was written behind 4 zero bytes.
func (d *RowDecoder) addSeconds(qualifier, value []byte) error {
	q := binary.BigEndian.Uint16(qualifier)
	flags := byte(q) & flagsMask
	if flags == flagFloat32 && len(value) == 8 {
		if !allZero(value[:4]) {
			return fmt.Errorf("%w: value %x of a 4-byte float has 8 bytes, and the first 4 are not zero",
				ErrCorrupt, value)
		}
		value = value[4:]
	}
	v, err := ParseValue(value, flags)
	if err != nil {
		return err
	}
	d.addPoint(uint32(q>>4)*1000, v)
	return nil
}

func (d *RowDecoder) addCompacted(qualifiers, values []byte) error {
	points, read := d.addSplit(qualifiers, values)
	qualifiers, values = qualifiers[points*msWidth:], values[read:]
	for len(qualifiers) > 0 {
		offset, flags, width, err := ParseQualifier(qualifiers)
		if err != nil {
			return err
		}
		v, n, err := readValue(values, flags)
		if err != nil {
			return err
		}
		d.addPoint(offset, v)
		qualifiers, values = qualifiers[width:], values[n:]
	}
	return nil
}

func (d *RowDecoder) addOdd(qualifier, value []byte) error {
	switch first := qualifier[0]; {
	case first == 0x05 && len(qualifier) == 3:
		return d.addAppended(value)
	case first == 0x05:
		// OpenTSDB refuses this too. It may hold points, so it cannot be passed over like the unknown ones.
		return fmt.Errorf("%w: append cell with a qualifier of %d bytes, want 3", ErrCorrupt, len(qualifier))
	case first == 0x01:
		d.skipped.Annotations++
	case first == 0x06:
		d.skipped.Histograms++
	case IsHistogramCell(qualifier):
		return d.addHistogram(histogramOffset(qualifier), value)
	default:
		d.skipped.Unknown++
	}
	return nil
}

func (d *RowDecoder) addHistogram(offsetMs uint32, stored []byte) error {
	h, _, err := ParseHistogram(stored)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	d.points.AppendHistogram(d.timeOf(offsetMs), h)
	return nil
}

func (d *RowDecoder) addAppended(value []byte) error {
	for len(value) > 0 {
		offset, flags, width, err := ParseQualifier(value)
		if err != nil {
			return err
		}
		v, n, err := readValue(value[width:], flags)
		if err != nil {
			return err
		}
		d.addPoint(offset, v)
		value = value[width+n:]
	}
	return nil
}

// Nearly all points of a large read come through addListed and addSplit. They take what is usual as far as it goes:
// numbers with qualifiers in milliseconds, and eight bytes from where the value begins. The rest is for their callers.

// addListed adds points from the beginning of a point list, and returns the bytes that they have there.
func (d *RowDecoder) addListed(points []byte) (read int) {
	r := d.room(len(points) / (msWidth + 1))
	n := 0
	for n < len(r.t) && read+MaxPointBytes <= len(points) {
		point := points[read : read+MaxPointBytes]
		q := binary.BigEndian.Uint32(point)
		v, size := wordValue(binary.BigEndian.Uint64(point[msWidth:]), byte(q)&(flagsMask|listHistogram))
		if size == 0 {
			break
		}
		r.put(n, q, v)
		n++
		read += msWidth + size
	}
	d.take(r, n)
	return read
}

// addSplit adds points from the beginning of a multi-point cell, and returns how many, and the bytes of their values.
func (d *RowDecoder) addSplit(qualifiers, values []byte) (n, read int) {
	r := d.room(len(qualifiers) / msWidth)
	for n < len(r.t) && read+8 <= len(values) {
		q := binary.BigEndian.Uint32(qualifiers[n*msWidth : n*msWidth+msWidth])
		v, size := wordValue(binary.BigEndian.Uint64(values[read:read+8]), byte(q)&flagsMask)
		if size == 0 || q < msForm {
			break
		}
		r.put(n, q, v)
		n++
		read += size
	}
	d.take(r, n)
	return n, read
}

// pointRoom is where further points of a RowDecoder are put.
type pointRoom struct {
	t         []int64
	v         []float64
	base      int64 // ms
	last      int64 // time of the point before
	unordered bool
}

// room makes room for n further points.
func (d *RowDecoder) room(n int) pointRoom {
	p := &d.points
	p.T, p.V = slices.Grow(p.T, n), slices.Grow(p.V, n)
	at, last := len(p.T), int64(math.MinInt64)
	if at > 0 {
		last = p.T[at-1]
	}
	return pointRoom{t: p.T[at : at+n], v: p.V[at : at+n], base: d.baseMs, last: last}
}

// put puts in the point at i, whose qualifier is of milliseconds.
func (r *pointRoom) put(i int, qualifier uint32, v float64) {
	t := r.base + int64(qualifier&msOffsetMask>>msShift)
	r.unordered = r.unordered || t <= r.last
	r.t[i], r.v[i], r.last = t, v, t
}

// take takes over the first n points that were put into the room.
func (d *RowDecoder) take(r pointRoom, n int) {
	d.points.T, d.points.V = d.points.T[:len(d.points.T)+n], d.points.V[:len(d.points.V)+n]
	d.inOrder = d.inOrder && !r.unordered
}

// wordValue reads the value at the beginning of 8 bytes, whose form is told by the flags; n is 0 if there is no such
// form.
func wordValue(b uint64, flags byte) (v float64, n int) {
	n = int(flags&FlagLengthMask) + 1
	switch {
	case flags == flagFloat64:
		return math.Float64frombits(b), n
	case flags == flagFloat32:
		return float64(math.Float32frombits(uint32(b >> 32))), n
	case flags > flagInt64 || n&(n-1) != 0:
		return 0, 0
	}
	return float64(int64(b) >> (64 - 8*n)), n
}

// readValue reads the value at the beginning of b, whose form is told by the flags, and the number of its bytes.
func readValue(b []byte, flags byte) (v float64, n int, err error) {
	n = int(flags&FlagLengthMask) + 1
	if len(b) >= n {
		switch flags {
		case flagFloat64:
			return math.Float64frombits(binary.BigEndian.Uint64(b)), n, nil
		case flagInt8:
			return float64(int8(b[0])), n, nil
		case flagInt16:
			return float64(int16(binary.BigEndian.Uint16(b))), n, nil
		case flagInt32:
			return float64(int32(binary.BigEndian.Uint32(b))), n, nil
		case flagFloat32:
			return float64(math.Float32frombits(binary.BigEndian.Uint32(b))), n, nil
		case flagInt64:
			return float64(int64(binary.BigEndian.Uint64(b))), n, nil
		}
	}
	return 0, 0, valueError(b, flags)
}

func valueError(b []byte, flags byte) error {
	n := int(flags&FlagLengthMask) + 1
	if len(b) < n {
		return fmt.Errorf("%w: value has %d bytes left, and its flags %#x ask for %d", ErrCorrupt, len(b), flags, n)
	}
	_, err := ParseValue(b[:n], flags)
	return err
}

// AppendPoints appends the row's points from mint to maxt, both included, in order of time, one for a millisecond. If
// the first is a native histogram that does not say whether its count began anew, and the point before it tells, it
// says so. It may be called again, for other times or after more cells.
func (d *RowDecoder) AppendPoints(dst *Points, mint, maxt int64) {
	d.appendPoints(dst, math.MaxInt64, mint, maxt)
}

// AppendPointsAndBefore is AppendPoints that begins with the point before the first one, if that is later than a time.
func (d *RowDecoder) AppendPointsAndBefore(dst *Points, after, mint, maxt int64) {
	d.appendPoints(dst, after, mint, maxt)
}

// AppendLast appends the last point up to a time, if it is later than another.
func (d *RowDecoder) AppendLast(dst *Points, after, maxt int64) {
	points := d.inOrderOfTime()
	if _, to := points.between(math.MinInt64, maxt); to > 0 && points.T[to-1] > after {
		d.appendPoints(dst, math.MaxInt64, points.T[to-1], points.T[to-1])
	}
}

// appendPoints appends the points from mint to maxt, and the one before them if that is later than after.
func (d *RowDecoder) appendPoints(dst *Points, after, mint, maxt int64) {
	points := d.inOrderOfTime()
	from, to := points.between(mint, maxt)
	if from >= to {
		return
	}
	if from > 0 && points.T[from-1] > after {
		from--
	}
	first := dst.Len()
	dst.AppendRange(points, from, to)
	if h := dst.Histogram(first); from > 0 && !h.IsZero() {
		dst.H[first] = h.after(points.Histogram(from - 1))
	}
}

// inOrderOfTime are the row's points, one for a millisecond.
func (d *RowDecoder) inOrderOfTime() *Points {
	if len(d.points.T) > 0 && !d.inOrder {
		d.sort()
		return &d.sorted
	}
	return &d.points
}
