package query

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// piece is a part of a step, to be read in one call of the store.
type piece struct {
	step
	rows [][]byte
	of   []int     // the group of each row
	held []heldRow // held rows from the first row's key on, up to the next piece's
}

// minPiece is the rows of a step that are not shared among readers.
const minPiece = 128

// cut makes pieces of the steps, so many that each of the readers has one.
func (b *block) cut(readers int) {
	b.pieces = b.pieces[:0]
	most := max(minPiece, (len(b.wanted)+readers-1)/readers)
	for _, s := range b.steps {
		for from := s.from; from < s.to; from += most {
			to := min(s.to, from+most)
			if n := len(b.pieces); n > 0 && s.plan == byGet && b.pieces[n-1].plan == byGet && to-b.pieces[n-1].from <= most {
				b.pieces[n-1].to = to // small steps go together
				continue
			}
			b.pieces = append(b.pieces, piece{step: step{from: from, to: to, plan: s.plan, beside: s.beside}})
		}
	}
	if len(b.pieces) == 0 && len(b.held) > 0 {
		b.pieces = append(b.pieces, piece{step: step{plan: byGet}})
	}
	held := b.held
	for i := range b.pieces {
		p := &b.pieces[i]
		p.rows, p.of = b.wanted[p.from:p.to], b.owner[p.from:p.to]
		n := len(held)
		if i+1 < len(b.pieces) {
			next := b.wanted[p.to]
			n, _ = slices.BinarySearchFunc(held, next, func(h heldRow, key []byte) int { return bytes.Compare(h.key, key) })
		}
		p.held, held = held[:n], held[n:]
	}
}

var errFull = errors.New("the block is full")

// fill reads the rows. full says that it stopped at the querier's blockPoints, and that fewer rows should be tried.
func (b *block) fill(ctx context.Context, q *Querier, s *set) (full bool, err error) {
	b.steps = q.steps(b.steps[:0], b.wanted, s.population)
	b.cut(q.Concurrency)
	readers := min(q.Concurrency, len(b.pieces))
	for len(b.readers) < readers {
		b.readers = append(b.readers, new(reader))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, points atomic.Int64
	limit := int64(math.MaxInt64)
	if b.divisible() {
		limit = int64(q.blockPoints)
	}
	work := func(r *reader) {
		r.reset(q, s)
		for {
			i := int(next.Add(1)) - 1
			if i >= len(b.pieces) {
				return
			}
			if err := r.read(ctx, &b.pieces[i], &points, limit); err != nil {
				cancel(err)
				return
			}
		}
	}
	var wg sync.WaitGroup
	for _, r := range b.readers[:readers] {
		if r != b.readers[0] {
			wg.Go(func() { work(r) })
		}
	}
	if readers > 0 {
		work(b.readers[0])
	}
	wg.Wait()
	b.touched = Touched{Blocks: 1}
	b.merged.Reset()
	for _, r := range b.readers[:readers] {
		b.touched.add(r.touched)
	}
	if err := context.Cause(ctx); err != nil {
		b.runs = b.runs[:0]
		return errors.Is(err, errFull), err
	}
	b.gatherRuns(b.readers[:readers])
	b.mergeAliases()
	return false, nil
}

// gatherRuns takes over the runs of the readers, and puts them into order. Groups are counted, not compared: there may
// be many.
func (b *block) gatherRuns(readers []*reader) {
	b.starts = slices.Grow(b.starts[:0], b.to-b.from+1)[:b.to-b.from+1]
	clear(b.starts)
	total := 0
	for _, r := range readers {
		total += len(r.runs)
		for i := range r.runs {
			b.starts[r.runs[i].group-b.from+1]++
		}
	}
	for i := range b.starts[1:] {
		b.starts[i+1] += b.starts[i]
	}
	b.runs = slices.Grow(b.runs[:0], total)[:total]
	for _, r := range readers {
		for i := range r.runs {
			at := &b.starts[r.runs[i].group-b.from] // which becomes the start of the next group
			b.runs[*at] = r.runs[i]
			*at++
		}
	}
	begin := 0
	for _, end := range b.starts[:b.to-b.from] {
		if end > begin+1 {
			slices.SortFunc(b.runs[begin:end], func(x, y run) int {
				return cmp.Or(cmp.Compare(x.base, y.base), bytes.Compare(x.key, y.key))
			})
		}
		begin = end
	}
}

// reader reads pieces, one after the other. Keys of its runs are those of its pieces, and of their held rows.
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

	holding       // of the pages
	made    int64 // bytes of them, which may not be held yet
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

// read reads a piece. points counts those of all readers; beyond the limit it is errFull.
func (r *reader) read(ctx context.Context, p *piece, points *atomic.Int64, limit int64) error {
	at, held := 0, p.held
	for row, err := range r.rowsOf(ctx, p) {
		if err != nil {
			return err
		}
		for !bytes.Equal(p.rows[at], row.Key) {
			at++
		}
		before := r.touched.Samples
		for len(held) > 0 && bytes.Compare(held[0].key, row.Key) < 0 {
			held = r.decode(store.Row{Key: held[0].key}, held, held[0].group)
		}
		held = r.decode(store.Row{Key: p.rows[at], Cells: row.Cells}, held, p.of[at])
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
	for len(held) > 0 {
		held = r.decode(store.Row{Key: held[0].key}, held, held[0].group)
		if err := r.take(ctx, r.made-r.bytes); err != nil {
			return err
		}
	}
	if r.histogram {
		return ErrHistogram
	}
	return nil
}

// rowsOf yields those of a piece's rows that there are.
func (r *reader) rowsOf(ctx context.Context, p *piece) iter.Seq2[store.Row, error] {
	if len(p.rows) == 0 {
		return func(func(store.Row, error) bool) {}
	}
	r.touched.Calls++
	r.touched.Rows += len(p.rows)
	columns := []store.Column{{Family: catalog.FamilyData}}
	if p.plan == byGet {
		r.touched.Gets += len(p.rows)
		return r.q.Store.Get(ctx, store.Get{Table: r.q.Settings.Tables.Data, Rows: p.rows, Columns: columns})
	}
	scan := store.Scan{
		Table: r.q.Settings.Tables.Data, Columns: columns, Ranges: hourRanges(p.rows, r.q.Settings.Schema.TagsOffset()),
	}
	if p.beside > 0 {
		scan.Filter.Regexp = r.regexp
	}
	next := 0
	scan.Filter.Match = func(row []byte) bool {
		r.touched.Scanned++
		if next > 0 && bytes.Compare(row, p.rows[next-1]) <= 0 {
			next = 0 // a store may begin a range again
		}
		for next < len(p.rows) && bytes.Compare(p.rows[next], row) < 0 {
			next++
		}
		return next < len(p.rows) && bytes.Equal(p.rows[next], row)
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

// decode appends the samples of one row as a run: those of its cells, and of the held rows with its key, which are the
// first of held; it returns the others. The key is kept. A cell that cannot be read is reported and passed over.
// Samples beyond the row's hour, which a qualifier can name and no writer does, are left out: they might come after the
// next row's.
func (r *reader) decode(row store.Row, held []heldRow, group int) []heldRow {
	own := 0
	for own < len(held) && bytes.Equal(held[own].key, row.Key) {
		own++
	}
	key, err := r.q.Settings.Schema.ParseRowKey(row.Key)
	if err != nil {
		return held[own:] // never: it was asked for by this very key
	}
	r.decoder.Reset(key.Base)
	if len(row.Cells) > 0 {
		r.touched.Found++
		r.touched.Bytes += len(row.Key)
	}
	for _, c := range row.Cells {
		r.touched.Cells++
		r.touched.Bytes += len(c.Qualifier) + len(c.Value)
		if err := r.decoder.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
			r.q.metrics.corrupt.Inc()
			r.q.Logger.Warn("passed over a cell that cannot be read", "table", r.q.Settings.Tables.Data,
				"row", r.q.Index.UIDs.FormatRowKey(row.Key), "err", err)
		}
	}
	for _, h := range held[:own] {
		// What is held came after what is stored.
		if err := r.decoder.AddPoints(h.points, math.MaxInt64); err != nil {
			r.q.Logger.Error("passed over held points that cannot be read",
				"row", r.q.Index.UIDs.FormatRowKey(row.Key), "err", err)
		}
	}
	page := r.page(r.decoder.Len())
	from := page.Len()
	r.appendPoints(page, max(r.mint, int64(key.Base)*1000), min(r.maxt, int64(key.Base)*1000+mapping.HourMs-1))
	if to := page.Len(); to > from {
		r.runs = append(r.runs, run{group, key.Base, row.Key, page, from, to})
		r.touched.Samples += to - from
		r.made += runBytes
		for i := from; i < min(to, len(page.H)); i++ {
			r.made += int64(page.H[i].Bytes())
		}
	}
	return held[own:]
}

// appendPoints appends the decoder's points from mint to maxt that are wanted.
func (r *reader) appendPoints(page *mapping.Points, mint, maxt int64) {
	w := r.windows
	if w == nil {
		r.decoder.AppendPoints(page, mint, maxt)
		return
	}
	if w.before {
		last := mint - 1 // the time of the latest one appended
		for end := w.endFrom(mint); end-w.width < maxt; end += w.step {
			before := page.Len()
			r.decoder.AppendPointsAndBefore(page, last, max(mint, end-w.width+1), min(maxt, end))
			if n := page.Len(); n > before {
				last = page.T[n-1]
			}
		}
		r.decoder.AppendLast(page, last, maxt) // which is before the next hour's first
		return
	}
	for end := w.endFrom(mint); end-w.width < maxt; end += w.step {
		r.decoder.AppendPoints(page, max(mint, end-w.width+1), min(maxt, end))
	}
	r.histogram = r.histogram || len(page.H) > 0
}
