package uid

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store/metricset"
)

// metrics are the Registry's, those of a kind by kind.
type metrics struct {
	hits, misses, assigned, limited [kinds]prometheus.Counter
	last                            [kinds]prometheus.Gauge
	lostRaces                       prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, schema mapping.Schema) (*metrics, error) {
	var set metricset.Set
	hits := set.CounterVec("promtsd_uid_cache_hits_total",
		"Look-ups of a UID or of a name that the caches answered.", "kind")
	misses := set.CounterVec("promtsd_uid_cache_misses_total",
		"Look-ups of a UID or of a name that the caches could not answer.", "kind")
	assigned := set.CounterVec("promtsd_uid_assigned_total",
		"New UIDs given to names by this process.", "kind")
	limited := set.CounterVec("promtsd_uid_limited_total",
		"New names that got no UID because of --write.max-new-names-per-second or -per-hour, or as the last UIDs are "+
			"kept.", "kind")
	last := set.GaugeVec("promtsd_uid_last_assigned",
		"Last UID given by any process, as this one last saw the counter; 0 before its first look.", "kind")
	capacity := set.GaugeVec("promtsd_uid_max",
		"Largest UID that the width can hold: when promtsd_uid_last_assigned gets there, new names are refused.", "kind")
	m := &metrics{lostRaces: set.Counter("promtsd_uid_lost_races_total",
		"UIDs taken from the counter and lost, because another process was faster or used them already.")}
	for _, k := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
		m.hits[k] = hits.WithLabelValues(k.String())
		m.misses[k] = misses.WithLabelValues(k.String())
		m.limited[k] = limited.WithLabelValues(k.String())
		m.assigned[k] = assigned.WithLabelValues(k.String())
		m.last[k] = last.WithLabelValues(k.String())
		capacity.WithLabelValues(k.String()).Set(float64(min(schema.MaxUID(k), math.MaxInt64)))
	}
	return m, set.Register(registerer)
}
