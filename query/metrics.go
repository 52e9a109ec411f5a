package query

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping/index"
)

type metrics struct {
	candidates, series, rows, scanned, cells, bytes, calls, samples, corrupt prometheus.Counter

	selects *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "promtsd_query_" + name + "_total", Help: help})
		if r != nil {
			r.MustRegister(c)
		}
		return c
	}
	selects := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "promtsd_query_selects_total", Help: "Selectors resolved to series, by where their series were found.",
	}, []string{"source"})
	if r != nil {
		r.MustRegister(selects)
	}
	return metrics{
		selects:    selects,
		candidates: counter("candidates", "Index entries compared with a selector's matchers."),
		series:     counter("series", "Series that matched a selector."),
		rows:       counter("rows", "Data rows asked for."),
		scanned:    counter("scanned_rows", "Data rows that scans met, wanted or not."),
		cells:      counter("cells", "Data cells read."),
		bytes:      counter("bytes", "Bytes of row keys, qualifiers and values of the data cells read."),
		calls:      counter("store_calls", "Calls of the store for data rows."),
		samples:    counter("samples", "Samples decoded inside the time range of their query."),
		corrupt:    counter("corrupt_cells", "Data cells passed over because they cannot be read."),
	}
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
