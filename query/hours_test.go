package query_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store/storetest"
)

// A range of all time costs what the days with samples cost, not its hours.
func TestSelect_AWideRangeReadsOnlyTheDaysThatHoldSamples(t *testing.T) {
	st := storetest.NewMem()
	db, want := newDatabase(t, st, nil), model{}
	ls := labels.FromStrings("__name__", "m")
	for _, at := range []int64{3 * day, 3*day + 5*mapping.HourMs, 900 * day, mapping.MaxTime} {
		db.write(t, ls, request.Sample{T: at, V: 1})
		want.write(ls, request.Sample{T: at, V: 1})
	}
	for _, c := range []struct {
		name     string
		complete bool
	}{{"by the index", true}, {"by row keys", false}} {
		t.Run(c.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			other := *db
			other.Settings.IndexComplete = c.complete
			got := other.withQuerier(st, func(q *query.Config) { q.Registerer = registry })
			check(t, "all time", got.answer(t, 0, mapping.MaxTime, named("m")...), want.answer(0, mapping.MaxTime))
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				// Two whole days, and what the last one has of hours before time ends.
				if n := f.GetMetric()[0].GetCounter().GetValue(); f.GetName() == "promtsd_query_rows_total" && n > 3*24 {
					t.Errorf("asked for %v rows, want at most %d", n, 3*24)
				}
			}
		})
	}
}

// Where the index is not in memory, a long range asks for the rows of the days on which each series was active, not of
// all days.
func TestSelect_ALongRangeWithoutMemoryReadsTheDaysOfEachSeries(t *testing.T) {
	const days = 90
	db, want := newDatabase(t, storetest.NewMem(), nil), model{}
	for d := range int64(days) {
		ls := labels.FromStrings("__name__", "m", "pod", fmt.Sprintf("%03d", d))
		db.write(t, ls, request.Sample{T: start + d*day, V: 1})
		want.write(ls, request.Sample{T: start + d*day, V: 1})
	}
	registry := prometheus.NewRegistry()
	got := db.withQuerier(db.Store, func(q *query.Config) { q.Registerer = registry })
	check(t, "all days", got.answer(t, start, start+days*day, named("m")...), want.answer(start, start+days*day))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := f.GetMetric()[0].GetCounter().GetValue(); f.GetName() == "promtsd_query_rows_total" && n > days*24 {
			t.Errorf("asked for %v rows of %d series of a day each, want at most %d", n, days, days*24)
		}
	}
}
