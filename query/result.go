package query

import (
	"bytes"
	"cmp"
	"slices"
	"unsafe"

	"github.com/promtsd/promtsd/mapping"
)

// result is the samples of a block.
type result struct {
	runs    []run          // by group, then base time
	merged  mapping.Points // samples of runs that were made of several
	starts  []int          // of the runs of each group
	touched Touched
}

// run is the samples of one row.
type run struct {
	group    int
	base     uint32
	key      []byte
	points   *mapping.Points
	from, to int // of the points
}

const runBytes = 2 * int64(unsafe.Sizeof(run{}))

// collect takes over the runs of the readers, of the groups of an extent. merged must be empty.
func (r *result) collect(readers []*reader, e extent) {
	r.sort(readers, e)
	r.mergeAliases()
}

// sort puts the runs of the readers into order. Groups are counted, not compared: there may be many.
func (r *result) sort(readers []*reader, e extent) {
	groups := e.to - e.from
	r.starts = slices.Grow(r.starts[:0], groups+1)[:groups+1]
	clear(r.starts)
	total := 0
	for _, rd := range readers {
		total += len(rd.runs)
		for i := range rd.runs {
			r.starts[rd.runs[i].group-e.from+1]++
		}
	}
	for i := range r.starts[1:] {
		r.starts[i+1] += r.starts[i]
	}
	r.runs = slices.Grow(r.runs[:0], total)[:total]
	for _, rd := range readers {
		for i := range rd.runs {
			at := &r.starts[rd.runs[i].group-e.from] // which becomes the start of the next group
			r.runs[*at] = rd.runs[i]
			*at++
		}
	}
	begin := 0
	for _, end := range r.starts[:groups] {
		if end > begin+1 {
			slices.SortFunc(r.runs[begin:end], func(x, y run) int {
				return cmp.Or(cmp.Compare(x.base, y.base), bytes.Compare(x.key, y.key))
			})
		}
		begin = end
	}
}

// mergeAliases makes one run of those of one group and hour: two TSUIDs with the same labels.
func (r *result) mergeAliases() {
	for i := 1; i < len(r.runs); i++ {
		x, y := r.runs[i-1], r.runs[i]
		if x.group != y.group || x.base != y.base {
			continue
		}
		r.runs[i] = r.merge(x, y)
		r.runs = slices.Delete(r.runs, i-1, i)
		i--
	}
}

// merge makes one run of two; of two samples at one time the later run's counts.
func (r *result) merge(x, y run) run {
	p := &r.merged
	out := run{x.group, x.base, y.key, p, p.Len(), 0}
	for x.from < x.to || y.from < y.to {
		switch {
		case y.from == y.to || x.from < x.to && x.points.T[x.from] < y.points.T[y.from]:
			p.AppendPoint(x.points, x.from)
			x.from++
		default:
			if x.from < x.to && x.points.T[x.from] == y.points.T[y.from] {
				x.from++
			}
			p.AppendPoint(y.points, y.from)
			y.from++
		}
	}
	out.to = p.Len()
	return out
}
