package uid

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/promtsd/promtsd/mapping"
)

// metrics are the Registry's, those of a kind by kind.
type metrics struct {
	hits, misses, assigned, limited [kinds]prometheus.Counter
	last                            [kinds]prometheus.Gauge
	lostRaces                       prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, schema mapping.Schema) *metrics {
	factory := promauto.With(registerer)
	byKind := []string{"kind"}
	hits := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "promtsd_uid_cache_hits_total",
		Help: "Look-ups of a UID or of a name that the caches answered.",
	}, byKind)
	misses := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "promtsd_uid_cache_misses_total",
		Help: "Look-ups of a UID or of a name that the caches could not answer.",
	}, byKind)
	assigned := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "promtsd_uid_assigned_total",
		Help: "New UIDs given to names by this process.",
	}, byKind)
	limited := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "promtsd_uid_limited_total",
		Help: "New names that got no UID because of --write.max-new-names-per-second or -per-hour, or as the last UIDs are kept.",
	}, byKind)
	last := factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "promtsd_uid_last_assigned",
		Help: "Last UID given by any process, as this one last saw the counter; 0 before its first look.",
	}, byKind)
	capacity := factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "promtsd_uid_max",
		Help: "Largest UID that the width can hold: when promtsd_uid_last_assigned gets there, new names are refused.",
	}, byKind)
	m := &metrics{lostRaces: factory.NewCounter(prometheus.CounterOpts{
		Name: "promtsd_uid_lost_races_total",
		Help: "UIDs taken from the counter and lost, because another process was faster or used them already.",
	})}
	for _, k := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
		m.hits[k] = hits.WithLabelValues(k.String())
		m.misses[k] = misses.WithLabelValues(k.String())
		m.limited[k] = limited.WithLabelValues(k.String())
		m.assigned[k] = assigned.WithLabelValues(k.String())
		m.last[k] = last.WithLabelValues(k.String())
		capacity.WithLabelValues(k.String()).Set(float64(min(schema.MaxUID(k), math.MaxInt64)))
	}
	return m
}
