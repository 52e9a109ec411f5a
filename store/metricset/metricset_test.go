package metricset_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store/metricset"
)

func TestRegister_IsAllOrNothing(t *testing.T) {
	registry := prometheus.NewRegistry()
	var taken, set metricset.Set
	taken.Counter("b_total", "Taken.")
	if err := taken.Register(registry); err != nil {
		t.Fatal(err)
	}
	set.Counter("a_total", "A counter.").Inc()
	set.Counter("b_total", "Taken.")
	set.CounterVec("g_total", "Counters.", "label").WithLabelValues("x")
	set.Gauge("c", "A gauge.")
	set.GaugeVec("d", "Gauges.", "label")
	set.GaugeFunc("e", "A function.", func() float64 { return 1 })
	set.HistogramVec("f", "Histograms.", []float64{1}, "label")
	if err := set.Register(registry); err == nil {
		t.Error("a name that is taken is registered again")
	}
	if got := names(t, registry); len(got) != 1 || got[0] != "b_total" {
		t.Errorf("after the error %q are registered, want b_total", got)
	}
	taken.Unregister(registry)
	if err := set.Register(registry); err != nil {
		t.Error(err)
	}
	if got := names(t, registry); len(got) != 5 { // d and f have no values yet
		t.Errorf("%q are registered, want a_total, b_total, c, e and g_total", got)
	}
	if err := set.Register(nil); err != nil {
		t.Error(err)
	}
}

func names(t *testing.T, g prometheus.Gatherer) (names []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}
