package query

import (
	"bytes"
	"context"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
)

// A query is read block by block: the rows of some neighbouring groups (in label order) over some hours, either many
// groups over all hours or one group over a part of them. So memory is bounded by the block, whatever is asked, and the
// series come out in label order.

// extent says which rows a block holds.
type extent struct {
	from, to   int // groups[from:to]
	begin, end int // hours[begin:end]
}

// block is an extent's samples. It is filled again and again.
type block struct {
	extent
	runs   []run          // by group, then base time
	merged mapping.Points // samples of runs that were made of several

	rows    int      // rows wanted
	members []member // the TSUIDs
	active  []member // those of a day
	keys    []byte
	wanted  [][]byte // row keys, ascending
	owner   []int    // the group of each wanted row
	steps   []step
	pieces  []piece
	readers []*reader
	touched Touched

	tsuids [][]byte // of the groups, for gatherHeld
	owners []int    // the group of each
	held   []heldRow
	slab   []byte // keys and points of held rows
}

// heldRow is a row of which points are held in memory.
type heldRow struct {
	group  int
	key    []byte
	points []byte // a point list
}

// run is the samples of one row.
type run struct {
	group    int
	base     uint32
	key      []byte
	points   *mapping.Points
	from, to int // of the points
}

// member is one TSUID of a block.
type member struct {
	group int
	row   []byte // row key, to be patched with base times
	days  index.Days
}

// plan lists the row keys of an extent, ascending.
func (b *block) plan(s mapping.Schema, groups []group, hours []uint32, e extent) {
	b.extent = e
	b.members, b.keys, b.wanted, b.owner = b.members[:0], b.keys[:0], b.wanted[:0], b.owner[:0]
	for g := e.from; g < e.to; g++ {
		for _, t := range groups[g].series {
			b.members = append(b.members, member{g, s.AppendRowKey(nil, t.TSUID, 0), t.Days})
		}
	}
	// Keys order by salt and metric, then base time, then tags. With base time 0 members order by salt and metric, then
	// tags; so within each run of one salt and metric the hours go outermost.
	slices.SortFunc(b.members, func(x, y member) int { return bytes.Compare(x.row, y.row) })
	head := s.TagsOffset() - 4
	for start := 0; start < len(b.members); {
		end := start + 1
		for end < len(b.members) && bytes.Equal(b.members[end].row[:head], b.members[start].row[:head]) {
			end++
		}
		for at := e.begin; at < e.end; {
			day := dayOf(hours[at])
			b.active = b.active[:0]
			for _, m := range b.members[start:end] {
				if m.days.Has(index.Day(day)) {
					b.active = append(b.active, m)
				}
			}
			for ; at < e.end && dayOf(hours[at]) == day; at++ {
				b.want(s, b.active, hours[at])
			}
		}
		start = end
	}
	b.rows = len(b.wanted)
}

// want lists the rows of an hour.
func (b *block) want(s mapping.Schema, members []member, base uint32) {
	for _, m := range members {
		at := len(b.keys)
		b.keys = append(b.keys, m.row...)
		key := b.keys[at:len(b.keys):len(b.keys)]
		s.SetBaseTime(key, base)
		b.wanted = append(b.wanted, key)
		b.owner = append(b.owner, m.group)
	}
}

// gatherHeld asks for the points that are held of the block's rows. That comes before the store is read: what is flushed
// between the two is then met twice, and not missed.
func (b *block) gatherHeld(ctx context.Context, q *Querier, groups []group, hours []uint32) []error {
	b.held, b.slab = b.held[:0], b.slab[:0]
	if q.Held == nil || b.begin == b.end {
		return nil
	}
	b.tsuids, b.owners = b.tsuids[:0], b.owners[:0]
	for g := b.from; g < b.to; g++ {
		for _, t := range groups[g].series {
			b.tsuids = append(b.tsuids, t.TSUID)
			b.owners = append(b.owners, g)
		}
	}
	schema := q.Settings.Schema
	warnings := q.Held.Held(ctx, b.tsuids, hours[b.begin], hours[b.end-1], func(i int, base uint32, points []byte) {
		at := len(b.slab)
		b.slab = schema.AppendRowKey(b.slab, b.tsuids[i], base)
		end := len(b.slab)
		b.slab = append(b.slab, points...)
		b.held = append(b.held, heldRow{b.owners[i], b.slab[at:end:end], b.slab[end:len(b.slab):len(b.slab)]})
	})
	slices.SortStableFunc(b.held, func(x, y heldRow) int { return bytes.Compare(x.key, y.key) })
	return warnings
}

// divisible tells whether a block for fewer rows could be planned: it has more than one group, or hour.
func (e extent) divisible() bool { return e.to-e.from > 1 || e.end-e.begin > 1 }

// mergeAliases makes one run of those of one group and hour: two TSUIDs with the same labels.
func (b *block) mergeAliases() {
	for i := 1; i < len(b.runs); i++ {
		x, y := b.runs[i-1], b.runs[i]
		if x.group != y.group || x.base != y.base {
			continue
		}
		b.runs[i] = b.mergeRuns(x, y)
		b.runs = slices.Delete(b.runs, i-1, i)
		i--
	}
}

// mergeRuns appends the union of two runs; of two samples at one time the later run's counts.
func (b *block) mergeRuns(x, y run) run {
	p := &b.merged
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
