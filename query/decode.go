package query

import (
	"bytes"
	"math"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// decode appends the samples of one row as a run: those of its cells, and of the buffered rows with its key. Those
// are the first of buffered; it returns the others. The key is kept. A cell that cannot be read is reported and
// passed over. Samples beyond the row's hour, which a qualifier can name and no writer writes, are left out: they
// might come after the next row's.
func (r *reader) decode(row store.Row, buffered []bufferedRow, group int) []bufferedRow {
	own := 0
	for own < len(buffered) && bytes.Equal(buffered[own].key, row.Key) {
		own++
	}
	key, err := r.q.Settings.Schema.ParseRowKey(row.Key)
	if err != nil {
		return buffered[own:] // never: it was asked for by this very key
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
	for _, b := range buffered[:own] {
		// What is buffered came after what is stored.
		if err := r.decoder.AddPoints(b.points, math.MaxInt64); err != nil {
			r.q.Logger.Error("passed over buffered points that cannot be read", "row", r.q.Index.UIDs.FormatRowKey(row.Key), "err", err)
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
	return buffered[own:]
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
