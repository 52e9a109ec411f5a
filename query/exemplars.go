package query

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

const (
	// maxExemplarGets is the number of rows up to which the rows of exemplars are asked for by their keys. Beyond, all
	// rows of the metrics in the range are scanned: few series have exemplars.
	maxExemplarGets = 4096

	exemplarBytes = 300 // memory of an exemplar, and of the answer with it, besides its labels' texts, which are in both
)

// Exemplars finds the exemplars from mint to maxt, inclusive, in milliseconds, of the series that all matchers of any
// of the selectors match: the series sorted by labels, without those that have none, and the exemplars of each by time,
// value and labels. More than MaxSeries series are ErrLimit. The memory of the answer is taken from the account of the
// context.
func (q *Querier) Exemplars(
	ctx context.Context, mint, maxt int64, selectors ...[]*labels.Matcher,
) ([]exemplar.QueryResult, error) {
	r := &exemplarReader{
		q: q, rows: exemplars.NewRows(q.Settings.Schema), mint: max(mint, 0), maxt: min(maxt, mapping.MaxTime),
		at: make(map[string]int), maxGets: maxExemplarGets,
	}
	if q.forced == byScan {
		r.maxGets = 0
	}
	if r.mint > r.maxt {
		return []exemplar.QueryResult{}, nil
	}
	for _, matchers := range selectors {
		found, err := q.find(ctx, r.mint, r.maxt, 0, matchers)
		if err != nil {
			return nil, err
		}
		r.add(found)
	}
	for row, err := range r.read(ctx) {
		if err != nil {
			return nil, fmt.Errorf("read exemplars: %w", err)
		}
		if err := r.decode(ctx, row); err != nil {
			return nil, err
		}
	}
	return r.results(), nil
}

// exemplarReader is the work of one call of Exemplars.
type exemplarReader struct {
	q          *Querier
	rows       exemplars.Rows
	mint, maxt int64
	series     []index.Series
	at         map[string]int        // by TSUID, in series and found
	found      [][]exemplar.Exemplar // of each series
	keys       [][]byte              // of the rows that there may be
	maxGets    int
	tooMany    bool // rows that there may be: these are not all
	tsuid      []byte
	labels     labels.ScratchBuilder
}

// add notes the series that a selector has found.
func (r *exemplarReader) add(found index.Result) {
	for _, s := range found.Series {
		if _, known := r.at[string(s.TSUID)]; known {
			continue
		}
		r.at[string(s.TSUID)] = len(r.series)
		r.series = append(r.series, s)
		for _, base := range found.Hours {
			if len(r.keys) == r.maxGets {
				r.tooMany = true
				break
			}
			if s.Days.Has(mapping.DayOf(int64(base) * 1000)) {
				r.keys = append(r.keys, r.rows.Append(nil, s.TSUID, base))
			}
		}
	}
	r.found = append(r.found, make([][]exemplar.Exemplar, len(r.series)-len(r.found))...)
}

// read yields the rows, and maybe others.
func (r *exemplarReader) read(ctx context.Context) iter.Seq2[store.Row, error] {
	table, columns := r.q.Settings.Tables.Exemplars(), []store.Column{{Family: catalog.FamilySystem}}
	if !r.tooMany {
		slices.SortFunc(r.keys, bytes.Compare)
		return r.q.Store.Get(ctx, store.Get{Table: table, Rows: r.keys, Columns: columns})
	}
	width := r.q.Settings.Schema.MetricWidth
	var metrics [][]byte
	for _, s := range r.series {
		metrics = append(metrics, s.TSUID[:width])
	}
	slices.SortFunc(metrics, bytes.Compare)
	scan := store.Scan{Table: table, Columns: columns}
	for _, metric := range slices.CompactFunc(metrics, bytes.Equal) {
		scan.Ranges = append(scan.Ranges, r.rows.Range(metric, mapping.BaseTime(r.mint), mapping.BaseTime(r.maxt)))
	}
	scan.Filter.Match = func(row []byte) bool { _, _, ok := r.seriesOf(row); return ok }
	return r.q.Store.Scan(ctx, scan)
}

// seriesOf says which series a row belongs to, if it is one that was found.
func (r *exemplarReader) seriesOf(row []byte) (at int, base uint32, ok bool) {
	var err error
	if r.tsuid, base, err = r.rows.AppendTSUID(r.tsuid[:0], row); err != nil {
		return 0, 0, false
	}
	at, ok = r.at[string(r.tsuid)]
	return at, base, ok
}

// decode adds the exemplars of a row. A cell that cannot be read is reported and passed over.
func (r *exemplarReader) decode(ctx context.Context, row store.Row) error {
	at, base, ok := r.seriesOf(row.Key)
	if !ok {
		return nil
	}
	for _, c := range row.Cells {
		e, err := r.parse(base, c)
		if err != nil {
			r.q.metrics.corrupt.Inc()
			r.q.Logger.Warn("passed over an exemplar that cannot be read", "table", r.q.Settings.Tables.Exemplars(),
				"series", r.series[at].Labels, "hour", time.Unix(int64(base), 0).UTC(), "err", err)
			continue
		}
		if e.Ts < r.mint || e.Ts > r.maxt {
			continue
		}
		r.found[at] = append(r.found[at], e)
		if err := budget.From(ctx).Take(ctx, int64(exemplarBytes+4*len(c.Value))); err != nil {
			return err
		}
	}
	return nil
}

func (r *exemplarReader) parse(base uint32, c store.Cell) (exemplar.Exemplar, error) {
	e, err := exemplars.Parse(base, c)
	if err != nil {
		return exemplar.Exemplar{}, err
	}
	r.labels.Reset()
	if err := request.ParseLabels(e.Labels, func(name, value []byte) error {
		r.labels.Add(string(name), string(value))
		return nil
	}); err != nil {
		return exemplar.Exemplar{}, err
	}
	return exemplar.Exemplar{Labels: r.labels.Labels(), Value: e.V, Ts: e.T, HasTs: true}, nil
}

// results are the series that have exemplars, in order. Two TSUIDs of the same labels are one series.
func (r *exemplarReader) results() []exemplar.QueryResult {
	results := []exemplar.QueryResult{}
	for i, s := range r.series {
		if len(r.found[i]) > 0 {
			results = append(results, exemplar.QueryResult{SeriesLabels: s.Labels, Exemplars: r.found[i]})
		}
	}
	slices.SortStableFunc(results, func(a, b exemplar.QueryResult) int {
		return labels.Compare(a.SeriesLabels,
			b.SeriesLabels)
	})
	merged := results[:0]
	for _, result := range results {
		if n := len(merged); n > 0 && labels.Equal(merged[n-1].SeriesLabels, result.SeriesLabels) {
			merged[n-1].Exemplars = append(merged[n-1].Exemplars, result.Exemplars...)
			continue
		}
		merged = append(merged, result)
	}
	for _, result := range merged {
		slices.SortFunc(result.Exemplars, exemplar.Compare)
	}
	return merged
}
