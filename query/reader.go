package query

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// reader reads tasks, one after the other, and decodes their rows. It is used by one goroutine at a time. The keys of
// its runs are those of its tasks, and of their buffered rows.
type reader struct {
	q          *Querier
	mint, maxt int64
	windows    *Windows
	histogram  bool // a row has a native histogram in a window
	regexp     string
	pages      []*mapping.Points // the last one is being filled
	runs       []run             // of the pages
	decoder    mapping.RowDecoder
	touched    Touched

	reservation       // of the pages
	made        int64 // bytes of them, which may not be taken yet
}

func (r *reader) reset(q *Querier, s *set) {
	r.release(q)
	r.q, r.mint, r.maxt, r.windows, r.regexp = q, s.mint, s.maxt, s.windows, s.rowRegexp
	r.runs, r.touched, r.histogram = r.runs[:0], Touched{}, false
	r.made = 0
}

// pagePoints is how many samples a page has room for. Of a longer row the page becomes as long as that, and is of no
// more use.
const pagePoints = 1 << 14

// page returns one with room for so many samples.
func (r *reader) page(samples int) *mapping.Points {
	if n := len(r.pages); n > 0 && cap(r.pages[n-1].T)-r.pages[n-1].Len() >= samples {
		return r.pages[n-1]
	}
	p := r.q.pages.Get().(*mapping.Points)
	r.pages = append(r.pages, p)
	r.made += int64(max(samples, pagePoints)) * pointBytes
	return p
}

// release gives the pages up for others.
func (r *reader) release(q *Querier) {
	for _, p := range r.pages {
		if p.Reset(); cap(p.T) == pagePoints {
			q.pages.Put(p)
		}
	}
	clear(r.pages)
	r.pages = r.pages[:0]
	r.giveBack()
}

// read reads a task. points counts those of all readers; beyond the limit it is errFull.
func (r *reader) read(ctx context.Context, t *task, points *atomic.Int64, limit int64) error {
	at, buffered := 0, t.buffered
	for row, err := range r.storedRows(ctx, t) {
		if err != nil {
			return err
		}
		for !bytes.Equal(t.rows[at], row.Key) {
			at++
		}
		before := r.touched.Samples
		for len(buffered) > 0 && bytes.Compare(buffered[0].key, row.Key) < 0 {
			buffered = r.decode(store.Row{Key: buffered[0].key}, buffered, buffered[0].group)
		}
		buffered = r.decode(store.Row{Key: t.rows[at], Cells: row.Cells}, buffered, t.groups[at])
		if r.histogram {
			return ErrHistogram
		}
		if points.Add(int64(r.touched.Samples-before)) > limit {
			return errFull
		}
		if err := r.take(ctx, r.made-r.bytes); err != nil {
			return err
		}
	}
	for len(buffered) > 0 {
		buffered = r.decode(store.Row{Key: buffered[0].key}, buffered, buffered[0].group)
		if err := r.take(ctx, r.made-r.bytes); err != nil {
			return err
		}
	}
	if r.histogram {
		return ErrHistogram
	}
	return nil
}
