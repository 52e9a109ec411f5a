package query_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// writeExemplars writes exemplars of a series that has no samples.
func (db *database) writeExemplars(t testing.TB, ls labels.Labels, all ...exemplar.Exemplar) {
	t.Helper()
	req := request.Write{Series: []request.Series{{Labels: labelBytes(ls)}}}
	for _, e := range all {
		req.Exemplars = append(req.Exemplars, request.Exemplar{T: e.Ts, V: e.Value, Labels: labelBytes(e.Labels)})
	}
	result, err := db.Appender.Append(t.Context(), &req)
	if err != nil || result.Exemplars.Written != len(all) {
		t.Fatalf("wrote %+v, %v, want %d exemplars", result, err, len(all))
	}
}

func labelBytes(ls labels.Labels) (raw []byte) {
	ls.Range(func(l labels.Label) { raw = request.AppendLabel(raw, l.Name, l.Value) })
	return raw
}

func exemplarTexts(results []exemplar.QueryResult) []string {
	texts := []string{}
	for _, r := range results {
		var b strings.Builder
		b.WriteString(r.SeriesLabels.String())
		for _, e := range r.Exemplars {
			fmt.Fprintf(&b, " %d:%016x%s", e.Ts, math.Float64bits(e.Value), e.Labels)
		}
		texts = append(texts, b.String())
	}
	return texts
}

// Random exemplars, selectors and ranges against brute force, by gets and by scans.
func TestExemplars_FindsWhatMatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		salt := rapid.SampledFrom([]string{"0", "1"}).Draw(rt, "salt")
		st := storetest.NewMem()
		settings, _, err := catalog.Init(t.Context(), st, "promtsd", map[string]string{catalog.SaltWidth: salt})
		if err != nil {
			rt.Fatal(err)
		}
		db := wire(st, settings)
		times := rapid.OneOf(rapid.Int64Range(start, start+3*mapping.HourMs), rapid.Int64Range(start, start+60*day))
		value := rapid.SampledFrom([]string{"", "1", "2"})
		type written struct {
			ls  labels.Labels
			all map[string]exemplar.Exemplar
		}
		model := map[string]written{}
		for range rapid.IntRange(0, 8).Draw(rt, "writes") {
			ls := labels.NewBuilder(labels.EmptyLabels()).Set("__name__",
				rapid.SampledFrom([]string{"m", "n"}).Draw(rt, "name")).
				Set("a", value.Draw(rt, "a")).Set("b", value.Draw(rt, "b")).Labels()
			w, ok := model[ls.String()]
			if !ok {
				w = written{ls, map[string]exemplar.Exemplar{}}
				model[ls.String()] = w
			}
			var some []exemplar.Exemplar
			for range rapid.IntRange(0, 4).Draw(rt, "exemplars") {
				e := exemplar.Exemplar{
					Labels: labels.NewBuilder(labels.EmptyLabels()).Set("id", value.Draw(rt, "id")).Labels(), HasTs: true,
					Ts: times.Draw(rt, "t"), Value: rapid.SampledFrom([]float64{0, 1, math.Inf(1)}).Draw(rt, "v"),
				}
				some = append(some, e)
				w.all[fmt.Sprint(e)] = e
			}
			db.writeExemplars(t, ls, some...)
			if rapid.Bool().Draw(rt, "samples, too") {
				db.write(t, ls, request.Sample{T: times.Draw(rt, "t"), V: 1})
			}
		}
		var selectors [][]*labels.Matcher
		for range rapid.IntRange(1, 3).Draw(rt, "selectors") {
			selectors = append(selectors, []*labels.Matcher{
				labels.MustNewMatcher(labels.MatchType(rapid.IntRange(0, 3).Draw(rt, "type")), "__name__", "m"),
				labels.MustNewMatcher(labels.MatchType(rapid.IntRange(0, 3).Draw(rt, "type")), "a", value.Draw(rt, "a")),
			})
		}
		mint, maxt := times.Draw(rt, "mint"), times.Draw(rt, "maxt")
		if rapid.IntRange(0, 3).Draw(rt, "all time") == 0 {
			mint, maxt = math.MinInt64, math.MaxInt64
		}
		want := []exemplar.QueryResult{}
		for _, w := range model {
			if !slices.ContainsFunc(selectors, func(ms []*labels.Matcher) bool {
				return ms[0].Matches(w.ls.Get("__name__")) && ms[1].Matches(w.ls.Get("a"))
			}) {
				continue
			}
			r := exemplar.QueryResult{SeriesLabels: w.ls}
			for _, e := range w.all {
				if mint <= e.Ts && e.Ts <= maxt {
					r.Exemplars = append(r.Exemplars, e)
				}
			}
			slices.SortFunc(r.Exemplars, exemplar.Compare)
			if len(r.Exemplars) > 0 {
				want = append(want, r)
			}
		}
		slices.SortFunc(want, func(a, b exemplar.QueryResult) int { return labels.Compare(a.SeriesLabels, b.SeriesLabels) })
		for plan := range query.Methods {
			db.Querier.ForceMethod(plan)
			got, err := db.Querier.Exemplars(t.Context(), mint, maxt, selectors...)
			if err != nil || !slices.Equal(exemplarTexts(got), exemplarTexts(want)) {
				rt.Fatalf("%s: %v, %d..%d: %v\n got %q\nwant %q", plan, selectors, mint, maxt, err, exemplarTexts(got),
					exemplarTexts(want))
			}
		}
	})
}

func TestExemplars_AreBounded(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	for _, n := range []string{"1", "2"} {
		db.writeExemplars(t, labels.FromStrings("__name__", "m", "n", n), exemplar.Exemplar{Ts: start},
			exemplar.Exemplar{Ts: start + 1})
	}
	_, ctx := withAccount(t, 1500)
	if _, err := db.Querier.Exemplars(ctx, start, start+1, named("m")); !errors.Is(err, budget.ErrTooLarge) ||
		!strings.Contains(err.Error(), "--query.max-memory-bytes") {
		t.Errorf("beyond the bytes: got %v", err)
	}
	_, ctx = withAccount(t, 1500)
	if got, err := db.Querier.Exemplars(ctx, start, start, named("m")); err != nil || len(got) != 2 {
		t.Errorf("within the bytes: got %v, %v", got, err)
	}
	few := db.withQuerier(db.Store, func(c *query.Config) { c.MaxSeries = 1 })
	if _, err := few.Querier.Exemplars(t.Context(), start, start, named("m")); !errors.Is(err, query.ErrLimit) ||
		!strings.Contains(err.Error(), "--query.max-series") {
		t.Errorf("beyond the series: got %v", err)
	}
	// A long range is not asked for row by row.
	got, err := db.Querier.Exemplars(t.Context(), 0, mapping.MaxTime, named("m"))
	if err != nil || len(got) != 2 {
		t.Errorf("of all time: got %v, %v", got, err)
	}
}

func TestExemplars_PassesOverWhatCannotBeRead(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	db.writeExemplars(t, labels.FromStrings("__name__", "m"), exemplar.Exemplar{Ts: start})
	var b store.Batch
	for row, err := range db.Store.Scan(t.Context(), store.Scan{Table: "promtsd-exemplars"}) {
		if err != nil {
			t.Fatal(err)
		}
		b.Put("promtsd-exemplars", row.Key, catalog.FamilySystem, []byte("odd"), 1, nil)
		b.Put("promtsd-exemplars", row.Key, catalog.FamilySystem, make([]byte, 12), 1, append(make([]byte, 8), 0x0a, 0x7f))
		b.Put("promtsd-exemplars", append(row.Key, 1), catalog.FamilySystem, []byte("odd"), 1, nil)
	}
	if err := db.Store.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	other := db.withQuerier(db.Store, func(c *query.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for plan, warnings := range map[string]int{"get": 2, "scan": 2} {
		log.Reset()
		other.Querier.ForceMethod(plan)
		got, err := other.Querier.Exemplars(t.Context(), start, start, named("m"))
		if err != nil || len(got) != 1 || len(got[0].Exemplars) != 1 || strings.Count(log.String(), "WARN") != warnings {
			t.Errorf("%s: got %v, %v, and logged %s", plan, got, err, &log)
		}
	}
}

// failingRows is a store that fails to read rows of exemplars.
type failingRows struct {
	store.Store
	err error
}

func (f failingRows) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	if strings.HasSuffix(g.Table, "-exemplars") {
		return func(yield func(store.Row, error) bool) { yield(store.Row{}, f.err) }
	}
	return f.Store.Get(ctx, g)
}

func (f failingRows) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	if strings.HasSuffix(s.Table, "-exemplars") {
		return func(yield func(store.Row, error) bool) { yield(store.Row{}, f.err) }
	}
	return f.Store.Scan(ctx, s)
}

func TestExemplars_EndsWithTheError(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	db.writeExemplars(t, labels.FromStrings("__name__", "m"), exemplar.Exemplar{Ts: start})
	broken := errors.New("broken")
	for plan := range query.Methods {
		other := db.withQuerier(failingRows{db.Store, broken}, nil)
		other.Querier.ForceMethod(plan)
		if _, err := other.Querier.Exemplars(t.Context(), start, start, named("m")); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", plan, err)
		}
	}
}

func BenchmarkExemplars(b *testing.B) {
	db := newDatabase(b, openStore(b), nil)
	for n := range 1000 {
		var some []exemplar.Exemplar
		for i := range 24 {
			some = append(some, exemplar.Exemplar{
				Ts: start + int64(i)*mapping.HourMs, Value: 1,
				Labels: labels.FromStrings("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
			})
		}
		db.writeExemplars(b, labels.FromStrings("__name__", "m", "n", fmt.Sprint(n)), some...)
	}
	for name, matchers := range map[string][]*labels.Matcher{
		"1 of 1000 series": {labels.MustNewMatcher(labels.MatchEqual, "n", "7")}, "1000 series": nil,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				got, err := db.Querier.Exemplars(b.Context(), start, start+day, append(named("m"), matchers...))
				if err != nil || len(got) == 0 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
