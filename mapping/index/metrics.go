package index

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store/metricset"
)

// registerMetrics makes the metrics of a Memory, which are read from it when they are gathered.
func (m *Memory) registerMetrics(r prometheus.Registerer) error {
	var set metricset.Set
	set.GaugeFunc("promtsd_index_memory_series", "Series that the index holds in memory.", func() float64 {
		m.mu.RLock()
		defer m.mu.RUnlock()
		if m.serving == nil {
			return 0
		}
		return float64(m.serving.Len())
	})
	set.GaugeFunc("promtsd_index_memory_left_out_metrics",
		"Metrics that the index in memory leaves out for want of room.", func() float64 {
			m.mu.RLock()
			defer m.mu.RUnlock()
			if m.serving == nil {
				return 0
			}
			return float64(m.serving.LeftOut())
		})
	set.GaugeFunc("promtsd_index_memory_start_time_seconds",
		"Start of the first day that the index holds in memory, since 1970; +Inf while it holds none.", func() float64 {
			m.mu.RLock()
			defer m.mu.RUnlock()
			if m.serving == nil {
				return math.Inf(1)
			}
			return float64(m.serving.from) * mapping.DayMs / 1000
		})
	return set.Register(r)
}
