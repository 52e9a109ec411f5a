package budget

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store/metricset"
)

// Why requests are refused.
const (
	reasonBusy     = "busy"      // others hold the memory
	reasonTooLarge = "too_large" // for one request
)

// register makes and registers the metrics.
func (b *Budget) register(r prometheus.Registerer) error {
	var set metricset.Set
	b.refused = set.CounterVec("promtsd_query_memory_refused_requests_total",
		"Queries, remote reads and label calls that ended because there was not enough memory, by why.", "reason")
	for _, reason := range []string{reasonBusy, reasonTooLarge} { // a rate needs a 0 before the first
		b.refused.WithLabelValues(reason)
	}
	set.GaugeFunc("promtsd_query_memory_bytes",
		"Memory that queries, remote reads and label calls under way hold, as far as it is counted.",
		func() float64 { return float64(b.Held()) })
	set.GaugeFunc("promtsd_query_memory_limit_bytes", "How much they may hold.",
		func() float64 { return float64(b.total) })
	set.GaugeFunc("promtsd_query_memory_waiting_requests", "Those that wait for memory.",
		func() float64 { return float64(b.Waiting()) })
	return set.Register(r)
}

// Held is how many bytes the accounts have of the budget.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// Waiting is how many requests wait.
func (b *Budget) Waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting { // those of one account stand together
		if i == 0 || w.account != b.waiting[i-1].account {
			n++
		}
	}
	return n
}
