package query

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// task is rows of a plan that are read in one call of the store, by one goroutine, with the buffered rows between them.
type task struct {
	step
	rows     [][]byte
	groups   []int         // the group of each row
	buffered []bufferedRow // from the first row's key on, up to the next task's
}

// minTask is the number of rows of a step that are not shared among readers.
const minTask = 128

// divide makes tasks of a plan's steps, so many that each of the readers has one.
func divide(dst []task, p *plan, buffered []bufferedRow, readers int) []task {
	dst = dst[:0]
	most := max(minTask, (len(p.rows)+readers-1)/readers)
	for _, s := range p.steps {
		for from := s.from; from < s.to; from += most {
			to := min(s.to, from+most)
			if n := len(dst); n > 0 && s.method == byGet && dst[n-1].method == byGet && to-dst[n-1].from <= most {
				dst[n-1].to = to // small steps go together
				continue
			}
			dst = append(dst, task{step: step{from: from, to: to, method: s.method, unwanted: s.unwanted}})
		}
	}
	if len(dst) == 0 && len(buffered) > 0 {
		dst = append(dst, task{step: step{method: byGet}})
	}
	for i := range dst {
		t := &dst[i]
		t.rows, t.groups = p.rows[t.from:t.to], p.groups[t.from:t.to]
		n := len(buffered)
		if i+1 < len(dst) {
			next := p.rows[t.to]
			n, _ = slices.BinarySearchFunc(buffered, next, func(r bufferedRow, key []byte) int {
				return bytes.Compare(r.key, key)
			})
		}
		t.buffered, buffered = buffered[:n], buffered[n:]
	}
	return dst
}

// storedRows yields those of a task's rows that there are in the store.
func (r *reader) storedRows(ctx context.Context, t *task) iter.Seq2[store.Row, error] {
	if len(t.rows) == 0 {
		return func(func(store.Row, error) bool) {}
	}
	r.touched.Calls++
	r.touched.Rows += len(t.rows)
	columns := []store.Column{{Family: catalog.FamilyData}}
	if t.method == byGet {
		r.touched.Gets += len(t.rows)
		return r.q.Store.Get(ctx, store.Get{Table: r.q.Settings.Tables.Data, Rows: t.rows, Columns: columns})
	}
	scan := store.Scan{
		Table: r.q.Settings.Tables.Data, Columns: columns, Ranges: hourRanges(t.rows, r.q.Settings.Schema.TagsOffset()),
	}
	if t.unwanted > 0 {
		scan.Filter.Regexp = r.regexp
	}
	next := 0
	scan.Filter.Match = func(row []byte) bool {
		r.touched.Scanned++
		if next > 0 && bytes.Compare(row, t.rows[next-1]) <= 0 {
			next = 0 // a store may begin a range again
		}
		for next < len(t.rows) && bytes.Compare(t.rows[next], row) < 0 {
			next++
		}
		return next < len(t.rows) && bytes.Equal(t.rows[next], row)
	}
	return r.q.Store.Scan(ctx, scan)
}

// hourRanges are for each hour of some rows, ascending, the range from the first to the last one. The hour ends where
// the tags begin.
func hourRanges(rows [][]byte, tags int) (ranges []store.Range) {
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && bytes.Equal(rows[to][:tags], rows[from][:tags]) {
			to++
		}
		stop := append(rows[to-1][:len(rows[to-1]):len(rows[to-1])], 0)
		ranges = append(ranges, store.Range{Start: rows[from], Stop: stop})
		from = to
	}
	return ranges
}
