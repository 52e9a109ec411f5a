package promstore_test

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/store/storetest"
)

// Of native histograms, too, a query reads the hours that it looks at, and those before them for what came before; it
// holds what it looks at, and little besides.
func TestEngine_ReadsOfHistogramsWhatItLooksAt(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	const series, days = 3, 29
	writeDays(t, db, "h", series, days, func(i int64) float64 { return math.Float64frombits(histogramBits + uint64(i%17)*2) })
	plain := newEngine(t)
	for _, text := range []string{"h", "sum(h)", "sum(rate(h[10m]))", "histogram_count(increase(h[20m] offset 10m))"} {
		registry := prometheus.NewRegistry()
		config := db.querier.Config
		config.Registerer = registry
		on := promstore.New(promstore.Config{Querier: storetest.Must(query.New(config))})
		a := asked{text: text, start: time.UnixMilli(engineStart + day/2 + 31*60_000), step: 24 * time.Hour}
		a.end = time.UnixMilli(engineStart + days*day - 1)
		if got, want := ask(t, promstore.Engine{QueryEngine: plain}, on, a), ask(t, plain, db, a); got != want {
			t.Errorf("%s:\n got %.1000s\nwant %.1000s", text, got, want)
		}
		if rows := counted(t, registry, "promtsd_query_rows_total"); rows > series*2*days {
			t.Errorf("%s: read %v rows, want %d", text, rows, series*2*days)
		}
		if samples := counted(t, registry, "promtsd_query_samples_total"); samples > series*days*(2*2+4) {
			t.Errorf("%s: read %v samples of %d days", text, samples, days)
		}
	}
}
