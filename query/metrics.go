package query

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	selects, candidates, series, rows, cells, samples, corrupt prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "promtsd_query_" + name + "_total", Help: help})
		if r != nil {
			r.MustRegister(c)
		}
		return c
	}
	return metrics{
		selects:    counter("selects", "Selectors resolved to series."),
		candidates: counter("candidates", "Index entries compared with a selector's matchers."),
		series:     counter("series", "Series that matched a selector."),
		rows:       counter("rows", "Data rows asked for."),
		cells:      counter("cells", "Data cells read."),
		samples:    counter("samples", "Samples decoded inside the time range of their query."),
		corrupt:    counter("corrupt_cells", "Data cells passed over because they cannot be read."),
	}
}
