package mapping

import (
	"bytes"
	"cmp"
)

// rowOrder is the memory in which the points of a row are brought into order. Rows are lists of few ascending runs:
// points in seconds, then points in milliseconds, a compacted cell, then later points. So runs are merged, two by two.
type rowOrder struct {
	refs, spare []pointRef
	starts      []int // where runs begin
}

// pointRef is a point in the making of an order.
type pointRef struct {
	t     int64
	index int32 // into RowDecoder.points
	cell  int32 // into RowDecoder.cells
}

// sort fills d.sorted from d.points.
func (d *RowDecoder) sort() {
	o := &d.order
	o.refs, o.starts = o.refs[:0], o.starts[:0]
	for c, cell := range d.cells {
		end := len(d.points.T)
		if c+1 < len(d.cells) {
			end = d.cells[c+1].first
		}
		for i := cell.first; i < end; i++ {
			ref := pointRef{t: d.points.T[i], index: int32(i), cell: int32(c)}
			if n := len(o.refs); n == 0 || d.less(ref, o.refs[n-1]) {
				o.starts = append(o.starts, n)
			}
			o.refs = append(o.refs, ref)
		}
	}
	for len(o.starts) > 1 {
		d.mergeRuns()
	}
	d.sorted.Reset()
	for i, p := range o.refs {
		if i+1 == len(o.refs) || o.refs[i+1].t != p.t {
			d.sorted.AppendPoint(&d.points, int(p.index))
		}
	}
}

// mergeRuns merges each two neighbouring runs of d.order into one.
func (d *RowDecoder) mergeRuns() {
	o := &d.order
	merged, runs := o.spare[:0], 0
	for i := 0; i < len(o.starts); i += 2 {
		middle, end := len(o.refs), len(o.refs)
		if i+1 < len(o.starts) {
			middle = o.starts[i+1]
		}
		if i+2 < len(o.starts) {
			end = o.starts[i+2]
		}
		a, b := o.refs[o.starts[i]:middle], o.refs[middle:end]
		o.starts[runs] = len(merged)
		runs++
		for len(a) > 0 && len(b) > 0 {
			if d.less(b[0], a[0]) {
				merged, b = append(merged, b[0]), b[1:]
			} else {
				merged, a = append(merged, a[0]), a[1:]
			}
		}
		merged = append(append(merged, a...), b...)
	}
	o.refs, o.spare, o.starts = merged, o.refs, o.starts[:runs]
}

func (d *RowDecoder) less(a, b pointRef) bool {
	return a.t < b.t || a.t == b.t && d.yields(a, b)
}

// yields tells whether, of two points of one instant, b is the one to keep.
func (d *RowDecoder) yields(a, b pointRef) bool {
	if a.cell != b.cell {
		if c := cmp.Compare(d.cells[a.cell].timestamp, d.cells[b.cell].timestamp); c != 0 {
			return c < 0
		}
		if c := bytes.Compare(d.name(a.cell), d.name(b.cell)); c != 0 {
			return c < 0
		}
	}
	return a.index < b.index
}

// name is the qualifier of a cell.
func (d *RowDecoder) name(cell int32) []byte {
	end := len(d.names)
	if int(cell)+1 < len(d.cells) {
		end = d.cells[cell+1].name
	}
	return d.names[d.cells[cell].name:end]
}
