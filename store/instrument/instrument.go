// Package instrument counts and times what is asked of a store, whichever it is, by the metrics promtsd_store_*.
package instrument

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/metricset"
)

// instrumented is a store that passes everything on to another.
type instrumented struct {
	store.Store
	metrics *metrics
}

// rangeDeleter is the same on a store that deletes ranges.
type rangeDeleter struct{ *instrumented }

// New returns a store that does what inner does, and registers the metrics of it; they go with its Close, which closes
// inner. It is a store.RangeDeleter if inner is.
func New(inner store.Store, r prometheus.Registerer) (store.Store, error) {
	m, err := newMetrics(r)
	if err != nil {
		return nil, err
	}
	s := &instrumented{inner, m}
	if _, ok := inner.(store.RangeDeleter); ok {
		return rangeDeleter{s}, nil
	}
	return s, nil
}

// Tables implements store.Store.
func (s *instrumented) Tables(ctx context.Context) (all []store.Table, err error) {
	defer s.metrics.observe(tables, time.Now(), &err)
	return s.Store.Tables(ctx)
}

// CreateTable implements store.Store.
func (s *instrumented) CreateTable(ctx context.Context, t store.Table) (err error) {
	defer s.metrics.observe(createTable, time.Now(), &err)
	return s.Store.CreateTable(ctx, t)
}

// Apply implements store.Store.
func (s *instrumented) Apply(ctx context.Context, b *store.Batch) (err error) {
	defer s.metrics.observe(apply, time.Now(), &err)
	if err = s.Store.Apply(ctx, b); err == nil {
		s.metrics.cellsWritten.Add(float64(b.Len()))
	}
	return err
}

// Get implements store.Store.
func (s *instrumented) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return s.rows(get, s.Store.Get(ctx, g))
}

// Scan implements store.Store.
func (s *instrumented) Scan(ctx context.Context, sc store.Scan) iter.Seq2[store.Row, error] {
	match := sc.Filter.Match
	if match == nil {
		return s.rows(scan, s.Store.Scan(ctx, sc))
	}
	return func(yield func(store.Row, error) bool) {
		var rejected atomic.Int64 // a store may look at several parts at a time
		defer func() { s.metrics.rowsRejected.Add(float64(rejected.Load())) }()
		sc := sc
		sc.Filter.Match = func(row []byte) bool {
			wanted := match(row)
			if !wanted {
				rejected.Add(1)
			}
			return wanted
		}
		s.rows(scan, s.Store.Scan(ctx, sc))(yield)
	}
}

// rows counts what an iteration yields.
func (s *instrumented) rows(verb string, all iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		var failed error
		rows, cells := 0, 0
		defer func() {
			s.metrics.rowsRead.Add(float64(rows))
			s.metrics.cellsRead.Add(float64(cells))
		}()
		defer s.metrics.observe(verb, time.Now(), &failed)
		for row, err := range all {
			if err != nil {
				failed = err
			} else {
				rows++
				cells += len(row.Cells)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// Increment implements store.Store.
func (s *instrumented) Increment(ctx context.Context, c store.Coord, delta int64) (sum int64, err error) {
	defer s.metrics.observe(increment, time.Now(), &err)
	return s.Store.Increment(ctx, c, delta)
}

// CheckAndPut implements store.Store.
func (s *instrumented) CheckAndPut(ctx context.Context, checks []store.Check) (done []bool, err error) {
	defer s.metrics.observe(checkAndPut, time.Now(), &err)
	return s.Store.CheckAndPut(ctx, checks)
}

// DeleteRange implements store.RangeDeleter.
func (s rangeDeleter) DeleteRange(ctx context.Context, table string, r store.Range) (err error) {
	defer s.metrics.observe(deleteRange, time.Now(), &err)
	return s.Store.(store.RangeDeleter).DeleteRange(ctx, table, r)
}

// Close implements store.Store.
func (s *instrumented) Close() error {
	s.metrics.set.Unregister(s.metrics.registerer)
	return s.Store.Close()
}

// The verbs of a store, as the metrics name them.
const (
	tables      = "tables"
	createTable = "create_table"
	apply       = "apply"
	get         = "get"
	scan        = "scan"
	increment   = "increment"
	checkAndPut = "check_and_put"
	deleteRange = "delete_range"
)

// metrics are of one store.
type metrics struct {
	registerer prometheus.Registerer
	set        metricset.Set

	seconds      *prometheus.HistogramVec
	errors       *prometheus.CounterVec
	cellsWritten prometheus.Counter
	cellsRead    prometheus.Counter
	rowsRead     prometheus.Counter
	rowsRejected prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{registerer: r}
	m.seconds = m.set.HistogramVec("promtsd_store_operation_duration_seconds",
		"Time a call of the store took, by verb, with all its requests and repetitions; of gets and scans with what "+
			"the caller did with the rows.",
		prometheus.ExponentialBuckets(50e-6, 4, 10), "verb")
	m.errors = m.set.CounterVec("promtsd_store_operation_errors_total",
		"Calls of the store that ended in an error, by verb.", "verb")
	m.cellsWritten = m.set.Counter("promtsd_store_cells_written_total", "Mutations that batches applied.")
	m.cellsRead = m.set.Counter("promtsd_store_cells_read_total", "Cells that gets and scans returned.")
	m.rowsRead = m.set.Counter("promtsd_store_rows_read_total", "Rows that gets and scans returned.")
	m.rowsRejected = m.set.Counter("promtsd_store_rows_rejected_total",
		"Rows that the filter of a scan rejected in this process.")
	for _, verb := range []string{tables, createTable, apply, get, scan, increment, checkAndPut, deleteRange} {
		m.seconds.WithLabelValues(verb) // which are 0 until the first call
		m.errors.WithLabelValues(verb)
	}
	return m, m.set.Register(r)
}

// observe counts a call that began at start and ends now with *err.
func (m *metrics) observe(verb string, start time.Time, err *error) {
	m.seconds.WithLabelValues(verb).Observe(time.Since(start).Seconds())
	if *err != nil {
		m.errors.WithLabelValues(verb).Inc()
	}
}
