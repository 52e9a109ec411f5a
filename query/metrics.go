package query

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store/metricset"
)

type metrics struct {
	candidates, series, rows, scanned, cells, bytes, calls, samples, corrupt prometheus.Counter

	selects *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (metrics, error) {
	var set metricset.Set
	m := metrics{
		selects: set.CounterVec("promtsd_query_selects_total",
			"Selectors resolved to series, by where their series were found.", "source"),
		candidates: set.Counter("promtsd_query_candidates_total", "Index entries compared with a selector's matchers."),
		series:     set.Counter("promtsd_query_series_total", "Series that matched a selector."),
		rows:       set.Counter("promtsd_query_rows_total", "Data rows asked for."),
		scanned:    set.Counter("promtsd_query_scanned_rows_total", "Data rows that scans met, wanted or not."),
		cells:      set.Counter("promtsd_query_cells_total", "Data cells read."),
		bytes: set.Counter("promtsd_query_bytes_total",
			"Bytes of row keys, qualifiers and values of the data cells read."),
		calls:   set.Counter("promtsd_query_store_calls_total", "Calls of the store for data rows."),
		samples: set.Counter("promtsd_query_samples_total", "Samples decoded inside the time range of their query."),
		corrupt: set.Counter("promtsd_query_corrupt_cells_total",
			"Data cells passed over because they cannot be read."),
	}
	return m, set.Register(r)
}

// selected counts a selector.
func (m *metrics) selected(by index.AccessPath) { m.selects.WithLabelValues(string(by)).Inc() }

// touch counts what was read.
func (m *metrics) touch(t Touched) {
	m.rows.Add(float64(t.Rows))
	m.scanned.Add(float64(t.Scanned))
	m.cells.Add(float64(t.Cells))
	m.bytes.Add(float64(t.Bytes))
	m.calls.Add(float64(t.Calls))
	m.samples.Add(float64(t.Samples))
}
