package query_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// holder returns the database with an appender that keeps samples in memory, where queries find them, until it is
// closed.
func (db *database) holder(t testing.TB) *database {
	t.Helper()
	other := &database{*querytest.Over(db.Store, db.Settings, querytest.Options{
		Now: func() time.Time { return clock },
		Ingest: func(c *ingest.Config) {
			c.SingleProcess = true
			c.Buffer = ingest.Buffer{FlushInterval: time.Hour, MaxBytes: 1 << 30, Merge: true}
		},
	})}
	other.Querier = db.Querier
	if err := other.Appender.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return other
}

// remembering is the database with a querier that has the index in memory.
func (db *database) remembering(t testing.TB, change func(*query.Config)) *database {
	t.Helper()
	memory := storetest.Must(index.NewMemory(index.MemoryConfig{
		Store: db.Store, Settings: db.Settings, MaxSeries: 1 << 20,
	}))
	if err := memory.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db.withQuerier(db.Store, func(c *query.Config) {
		c.Index.Memory = memory
		if change != nil {
			change(c)
		}
	})
}

func genWrite(rt *rapid.T, genTime *rapid.Generator[int64]) (ls labels.Labels, samples []request.Sample) {
	ls = genLabels().Draw(rt, "series")
	for range rapid.IntRange(1, 8).Draw(rt, "samples") {
		samples = append(samples, request.Sample{T: genTime.Draw(rt, "t"), V: rapid.SampledFrom(values).Draw(rt, "v")})
	}
	return ls, samples
}

func TestSelect_ByEachPlanAndAccessPathAnswersAsBruteForce(t *testing.T) {
	for name, asked := range schemas {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { checkPlans(t, rt, newDatabase(t, storetest.NewMem(), asked)) })
		})
	}
	t.Run("embedded", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			st := openStore(t)
			defer st.Close()
			asked := schemas[rapid.SampledFrom(slices.Sorted(maps.Keys(schemas))).Draw(rt, "schema")]
			checkPlans(t, rt, newDatabase(t, st, asked))
		})
	})
}

// checkPlans writes samples, of which the latest are still held, and reads them by every plan on every path.
func checkPlans(t *testing.T, rt *rapid.T, db *database) {
	m := model{}
	start := clock.UnixMilli() - 60*day
	genTime := rapid.OneOf(
		rapid.Int64Range(start, start+4*mapping.HourMs), rapid.Int64Range(start, clock.UnixMilli()),
		rapid.SampledFrom([]int64{start, start + 1, start + 5*day, clock.UnixMilli()}),
	)
	var holding *database
	for phase := range 2 {
		holding = db.holder(t)
		for range rapid.IntRange(0, 15).Draw(rt, "writes") {
			ls, samples := genWrite(rt, genTime)
			holding.write(t, ls, samples...)
			m.write(ls, samples...)
		}
		if phase == 1 {
			defer func() {
				if err := holding.Appender.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
		} else if err := holding.Appender.Close(t.Context()); err != nil {
			rt.Fatal(err)
		}
	}
	configure := func(c *query.Config) {
		c.Buffer = holding.Appender
		c.Concurrency = rapid.SampledFrom([]int{1, 2, 8}).Draw(rt, "concurrency")
	}
	paths := map[string]*database{
		"memory": db.remembering(t, configure),
		"store":  db.withQuerier(db.Store, configure),
	}
	for range 4 {
		points := rapid.SampledFrom([]int{0, 5, 8 << 20}).Draw(rt, "points of a block")
		mint, maxt := genTime.Draw(rt, "mint"), genTime.Draw(rt, "maxt")
		ms := rapid.SliceOfN(genMatcher(), 1, 3).Draw(rt, "matchers")
		want := m.answer(mint, maxt, ms...)
		for path, r := range paths {
			r.Querier.SetBlockPoints(points)
			for plan := range query.Methods {
				r.Querier.ForceMethod(plan)
				if got := r.answer(t, mint, maxt, ms...); !slices.Equal(got, want) {
					rt.Fatalf("select %v from %d to %d by %s and %s:\n got %q\nwant %q", ms, mint, maxt, path, plan, got, want)
				}
				w := genWindows(rt, genTime)
				set, err := r.Querier.SelectWindows(t.Context(), mint, maxt, query.NewWindows(w.end, w.step, w.width), ms)
				if got, want := read(t, set, err), m.inWindows(w).answer(mint, maxt, ms...); !slices.Equal(got, want) {
					rt.Fatalf("select %v in %+v from %d to %d by %s and %s:\n got %q\nwant %q", ms, w, mint, maxt, path, plan, got,
						want)
				}
			}
		}
	}
}

// windows are what query.NewWindows is asked for.
type windows struct{ end, step, width int64 }

func genWindows(rt *rapid.T, genTime *rapid.Generator[int64]) windows {
	genLength := rapid.OneOf(rapid.Int64Range(60_000, 3*mapping.HourMs), rapid.Int64Range(60_000, 3*day))
	w := windows{end: genTime.Draw(rt, "a window's end"), step: genLength.Draw(rt, "step")}
	w.width = rapid.Int64Range(1, w.step-1).Draw(rt, "width")
	if rapid.Bool().Draw(rt, "aligned") {
		w.end = -w.end / mapping.HourMs * mapping.HourMs
	}
	return w
}

// inWindows is the model without the samples between windows.
func (m model) inWindows(w windows) model {
	out := model{}
	for _, s := range remotetest.Model(m).Read(0, mapping.MaxTime, nil) {
		for _, p := range s.Samples {
			if ((w.end-p.T)%w.step+w.step)%w.step < w.width {
				out.write(s.Labels, p)
			}
		}
	}
	return out
}

// The plans differ in what they touch: a few of many series are got, a whole metric is scanned.
func TestSelect_TakesThePlanThatTouchesLess(t *testing.T) {
	const series = 400
	for name, asked := range schemas {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, storetest.NewMem(), asked)
			m := db.fill(t, series, 24, mapping.HourMs)
			for _, r := range []*database{db.remembering(t, nil), db.withQuerier(db.Store, nil)} {
				buckets := max(1, db.Settings.Schema.SaltBuckets)
				if db.Settings.Schema.SaltWidth == 0 {
					buckets = 1
				}
				for _, c := range []struct {
					hours   int
					ms      []*labels.Matcher
					touched int // rows at most
				}{
					{24, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "n", "0007")}, 24 + buckets},
					{24, []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "n", "000[1-4]")}, 4*24 + buckets},
					{1, nil, series},
				} {
					ms := append(named("m"), c.ms...)
					end := start + int64(c.hours)*mapping.HourMs - 1
					e, err := r.Querier.Explain(t.Context(), start, end, ms, true)
					if err != nil {
						t.Fatal(err)
					}
					want := m.answer(start, end, ms...)
					check(t, fmt.Sprint(ms), r.answer(t, start, end, ms...), want)
					if rows := e.Actual.Gets + e.Actual.Scanned; rows > c.touched || e.Series != len(want) || e.Actual.Samples == 0 {
						t.Errorf("%v over %d h: %d rows touched, want at most %d: %+v", ms, c.hours, rows, c.touched, e)
					}
					if rows := e.Estimate.Gets + e.Estimate.Scanned; rows > c.touched+series/10 || e.Estimate.Rows != e.Actual.Rows {
						t.Errorf("%v over %d h: expected to touch %d rows, want at most %d: %+v", ms, c.hours, rows, c.touched, e)
					}
				}
			}
		})
	}
}

func TestExplain_CountsWhatMetricsCount(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	db.fill(t, 50, 20, 1000)
	registry := prometheus.NewRegistry()
	r := db.remembering(t, func(c *query.Config) { c.Registerer = registry })
	e, err := r.Querier.Explain(t.Context(), start, start+mapping.HourMs, named("m"), true)
	if err != nil {
		t.Fatal(err)
	}
	if e.AccessPath != index.AccessMemory || e.Candidates != 50 || e.Series != 50 || e.Hours != 2 || e.Took < e.IndexTook {
		t.Errorf("got %+v", e)
	}
	want := fmt.Sprintf(`
# HELP promtsd_query_bytes_total Bytes of row keys, qualifiers and values of the data cells read.
# TYPE promtsd_query_bytes_total counter
promtsd_query_bytes_total %d
# HELP promtsd_query_cells_total Data cells read.
# TYPE promtsd_query_cells_total counter
promtsd_query_cells_total 1000
# HELP promtsd_query_rows_total Data rows asked for.
# TYPE promtsd_query_rows_total counter
promtsd_query_rows_total 100
# HELP promtsd_query_samples_total Samples decoded inside the time range of their query.
# TYPE promtsd_query_samples_total counter
promtsd_query_samples_total 1000
# HELP promtsd_query_scanned_rows_total Data rows that scans met, wanted or not.
# TYPE promtsd_query_scanned_rows_total counter
promtsd_query_scanned_rows_total %d
# HELP promtsd_query_selects_total Selectors resolved to series, by where their series were found.
# TYPE promtsd_query_selects_total counter
promtsd_query_selects_total{source="memory"} 1
# HELP promtsd_query_store_calls_total Calls of the store for data rows.
# TYPE promtsd_query_store_calls_total counter
promtsd_query_store_calls_total %d
`, e.Actual.Bytes, e.Actual.Scanned, e.Actual.Calls)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"promtsd_query_bytes_total", "promtsd_query_cells_total", "promtsd_query_selects_total",
		"promtsd_query_rows_total", "promtsd_query_samples_total", "promtsd_query_scanned_rows_total",
		"promtsd_query_store_calls_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	empty, err := r.Querier.Explain(t.Context(), start, start, named("nosuch"), true)
	none := query.Touched{}
	if err != nil || empty.AccessPath != index.AccessNone || empty.Actual != none || empty.Estimate != none {
		t.Errorf("of nothing: got %+v, %v", empty, err)
	}
}

// meter counts the calls of the data table that run at the same time.
type meter struct {
	store.Store
	mu        sync.Mutex
	now, most int
}

func (m *meter) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return m.count(g.Table, m.Store.Get(ctx, g))
}

func (m *meter) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	return m.count(s.Table, m.Store.Scan(ctx, s))
}

func (m *meter) count(table string, rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	if table != "tsdb" {
		return rows
	}
	return func(yield func(store.Row, error) bool) {
		m.mu.Lock()
		m.now++
		m.most = max(m.most, m.now)
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			m.now--
			m.mu.Unlock()
		}()
		rows(yield)
	}
}

func TestSelect_MakesNoMoreCallsAtATimeThanAllowed(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), map[string]string{"salt.width": "1", "salt.buckets": "7"})
	m := db.fill(t, 2000, 2, mapping.HourMs)
	for _, concurrency := range []int{1, 3} {
		for plan := range query.Methods {
			counting := &meter{Store: db.Store}
			r := db.withQuerier(counting, func(c *query.Config) { c.Concurrency = concurrency })
			r.Querier.ForceMethod(plan)
			check(t, plan, r.answer(t, start, start+day, named("m")...), m.answer(start, start+day, named("m")...))
			if counting.most > concurrency {
				t.Errorf("by %s, %d calls allowed: %d at a time", plan, concurrency, counting.most)
			}
		}
	}
}

// Queries share blocks one after the other, and what they read must not mix.
func TestSelect_ManyAtATimeAnswerAsOne(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	m := db.fill(t, 300, 20, 600_000)
	r := db.remembering(t, func(c *query.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				ms := append(named("m"), labels.MustNewMatcher(labels.MatchRegexp, "n", fmt.Sprintf("0[0-2].%d", (i+j)%10)))
				end := start + int64(j)*mapping.HourMs
				if got, want := r.answer(t, start, end, ms...), m.answer(start, end, ms...); !slices.Equal(got, want) {
					t.Errorf("%v: got %d series, want %d", ms, len(got), len(want))
				}
			}
		})
	}
	wg.Wait()
}
