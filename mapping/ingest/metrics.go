package ingest

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	samples   prometheus.Counter
	newSeries prometheus.Counter
}

func newMetrics(r prometheus.Registerer, c *cache) metrics {
	m := metrics{
		samples: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promtsd_ingest_samples_total", Help: "Samples stored, exact repeats included.",
		}),
		newSeries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promtsd_ingest_series_resolved_total",
			Help: "Series that were not in the series cache and whose UIDs were looked up or assigned.",
		}),
	}
	if r != nil {
		r.MustRegister(m.samples, m.newSeries, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "promtsd_ingest_cached_series", Help: "Series in the series cache.",
		}, func() float64 { return float64(c.len()) }))
	}
	return m
}
