package query

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
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
	points mapping.Points // samples of all runs, end to end
	runs   []run          // by group, then base time
	rows   int            // rows asked for

	members []member
	keys    []byte
	wanted  [][]byte // row keys, ascending
	owner   []int    // the group of each wanted row
	decoder mapping.RowDecoder
}

// run is the samples of one row.
type run struct {
	group    int
	base     uint32
	from, to int // points[from:to]
}

// member is one TSUID of a block.
type member struct {
	group int
	row   []byte // row key, to be patched with base times
}

// plan lists the row keys of an extent, ascending.
func (b *block) plan(s mapping.Schema, groups []group, hours []uint32, e extent) {
	b.extent = e
	b.points.Reset()
	b.runs, b.members, b.keys, b.wanted, b.owner = b.runs[:0], b.members[:0], b.keys[:0], b.wanted[:0], b.owner[:0]
	for g := e.from; g < e.to; g++ {
		for _, tsuid := range groups[g].tsuids {
			b.members = append(b.members, member{g, s.AppendRowKey(nil, tsuid, 0)})
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
		for _, base := range hours[e.begin:e.end] {
			for _, m := range b.members[start:end] {
				at := len(b.keys)
				b.keys = append(b.keys, m.row...)
				key := b.keys[at:len(b.keys):len(b.keys)]
				s.SetBaseTime(key, base)
				b.wanted = append(b.wanted, key)
				b.owner = append(b.owner, m.group)
			}
		}
		start = end
	}
	b.rows = len(b.wanted)
}

// divisible tells whether a block for fewer rows could be planned: it has more than one group, or hour.
func (e extent) divisible() bool { return e.to-e.from > 1 || e.end-e.begin > 1 }

// fill reads the rows. full says that it stopped at the querier's blockPoints, and that fewer rows should be tried.
func (b *block) fill(ctx context.Context, q *Querier, mint, maxt int64) (full bool, err error) {
	get := store.Get{
		Table: q.Settings.Tables.Data, Rows: b.wanted,
		Columns: []store.Column{{Family: catalog.FamilyData}},
	}
	at, cells := 0, 0
	for row, err := range q.Store.Get(ctx, get) {
		if err != nil {
			return false, err
		}
		for !bytes.Equal(b.wanted[at], row.Key) {
			at++
		}
		b.decode(q, row, mint, maxt, b.owner[at])
		cells += len(row.Cells)
		if b.points.Len() > q.blockPoints && at < len(b.wanted)-1 && b.divisible() {
			return true, nil
		}
	}
	q.metrics.rows.Add(float64(b.rows))
	q.metrics.cells.Add(float64(cells))
	q.metrics.samples.Add(float64(b.points.Len()))
	slices.SortStableFunc(b.runs, func(x, y run) int {
		return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.base, y.base))
	})
	b.mergeAliases()
	return false, nil
}

// decode appends the samples of one row as a run. A cell that cannot be read is reported and passed over. Samples
// beyond the row's hour, which a qualifier can name and no writer does, are left out: they might come after the next
// row's.
func (b *block) decode(q *Querier, row store.Row, mint, maxt int64, group int) {
	key, err := q.Settings.Schema.ParseRowKey(row.Key)
	if err != nil {
		return // never: it was asked for by this very key
	}
	b.decoder.Reset(key.Base)
	for _, c := range row.Cells {
		if err := b.decoder.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
			q.metrics.corrupt.Inc()
			q.Logger.Warn("passed over a cell that cannot be read", "table", q.Settings.Tables.Data,
				"row", hex.EncodeToString(row.Key), "err", err)
		}
	}
	from := b.points.Len()
	b.decoder.AppendPoints(&b.points, mint, min(maxt, int64(key.Base)*1000+mapping.HourMs-1))
	if to := b.points.Len(); to > from {
		b.runs = append(b.runs, run{group, key.Base, from, to})
	}
}

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
	p := &b.points
	out := run{x.group, x.base, p.Len(), 0}
	for x.from < x.to || y.from < y.to {
		switch {
		case y.from == y.to || x.from < x.to && p.T[x.from] < p.T[y.from]:
			p.Append(p.T[x.from], p.V[x.from])
			x.from++
		default:
			if x.from < x.to && p.T[x.from] == p.T[y.from] {
				x.from++
			}
			p.Append(p.T[y.from], p.V[y.from])
			y.from++
		}
	}
	out.to = p.Len()
	return out
}
