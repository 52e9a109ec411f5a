package query

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
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

	rows     int      // rows wanted
	members  []member // the TSUIDs, in the order of their row keys
	active   []member // those of a day
	patterns []byte   // row keys of members
	keys     []byte
	wanted   [][]byte // row keys, ascending
	owner    []int    // the group of each wanted row
	steps    []step
	pieces   []piece
	readers  []*reader
	starts   []int // of the runs of each group
	touched  Touched

	tsuids [][]byte // of the members, for gatherBuffered
	held   []heldRow
	slabs  slabs // their keys and points

	holding // of all but the samples of the store, which the readers have
}

// heldRow is a row of which points are held in memory.
type heldRow struct {
	member, run int // of the block
	base        uint32
	group       int
	key, points []byte // points is a point list
}

// compare orders held rows as their keys do, which are longer to compare.
func (h heldRow) compare(o heldRow) int {
	return cmp.Or(cmp.Compare(h.run, o.run), cmp.Compare(h.base, o.base), cmp.Compare(h.member, o.member))
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
	tsuid []byte
	row   []byte // row key, to be patched with base times
	run   int    // which of the runs of members with one salt and metric it belongs to
	days  postings.Days
}

// plan lists the row keys of an extent, ascending.
func (b *block) plan(s mapping.Schema, groups []group, hours []uint32, e extent) {
	b.extent = e
	b.members, b.patterns, b.keys = b.members[:0], b.patterns[:0], b.keys[:0]
	b.wanted, b.owner = b.wanted[:0], b.owner[:0]
	for g := e.from; g < e.to; g++ {
		for _, t := range groups[g].series {
			at := len(b.patterns)
			b.patterns = s.AppendRowKey(b.patterns, t.TSUID, 0)
			b.members = append(b.members, member{g, t.TSUID, b.patterns[at:len(b.patterns):len(b.patterns)], 0, t.Days})
		}
	}
	// Keys order by salt and metric, then base time, then tags. With base time 0 members order by salt and metric, then
	// tags; so within each run of one salt and metric the hours go outermost.
	slices.SortFunc(b.members, func(x, y member) int { return bytes.Compare(x.row, y.row) })
	head := s.TagsOffset() - 4
	for start, run := 0, 0; start < len(b.members); run++ {
		end := start
		for end < len(b.members) && bytes.Equal(b.members[end].row[:head], b.members[start].row[:head]) {
			b.members[end].run = run
			end++
		}
		for at := e.begin; at < e.end; {
			day := dayOf(hours[at])
			b.active = b.active[:0]
			for _, m := range b.members[start:end] {
				if m.days.Has(mapping.Day(day)) {
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

// gatherBuffered asks for the points that are held of the block's rows. That comes before the store is read: what is
// flushed between the two is then met twice, and not missed. Their memory is taken before they are copied; where it
// would have to wait for it, it does when it knows how much it lacks, and asks again: who tells of points must not be
// held up.
func (b *block) gatherBuffered(ctx context.Context, s *set) (warnings []error, err error) {
	b.tsuids = b.tsuids[:0]
	for _, m := range b.members {
		b.tsuids = append(b.tsuids, m.tsuid)
	}
	schema := s.q.Settings.Schema
	for lacking := int64(0); ; {
		b.held = b.held[:0]
		b.slabs.reset()
		if err := b.become(ctx, b.planned()+lacking); err != nil || s.q.Buffer == nil || b.begin == b.end {
			return warnings, err
		}
		spare := lacking
		lacking = 0
		take := func(bytes int64) bool {
			if bytes <= spare {
				spare -= bytes
				return true
			}
			return b.tryTake(ctx, bytes)
		}
		from, to := s.hours[b.begin], s.hours[b.end-1]
		warnings = s.q.Buffer.Buffered(ctx, b.tsuids, from, to, func(i int, base uint32, points []byte) {
			if !s.overlap(base) {
				return
			}
			m := &b.members[i]
			n := len(m.row) + len(points)
			if lacking > 0 || !take(heldBytes+int64(b.slabs.growth(n))) {
				lacking += heldBytes + int64(n)
				return
			}
			copied := append(append(b.slabs.make(n), m.row...), points...)
			key := copied[:len(m.row):len(m.row)]
			schema.SetBaseTime(key, base)
			b.held = append(b.held, heldRow{i, m.run, base, m.group, key, copied[len(m.row):]})
		})
		if lacking == 0 {
			slices.SortStableFunc(b.held, heldRow.compare)
			return warnings, nil
		}
		lacking += int64(len(b.held))*heldBytes + slabBytes
	}
}

// divisible tells whether a block for fewer rows could be planned: it has more than one row, and more than one group,
// or hour.
func (b *block) divisible() bool { return b.rows > 1 && (b.to-b.from > 1 || b.end-b.begin > 1) }

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
