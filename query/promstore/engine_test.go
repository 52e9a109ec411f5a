package promstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/teststorage"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/pack"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

// newEngine is an engine that can do all that there is.
func newEngine(t testing.TB) *promql.Engine {
	e := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Hour, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 11 * 60_000 },
		Parser: parser.NewParser(parser.Options{
			EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true,
		}),
	})
	t.Cleanup(func() { e.Close() })
	return e
}

// ask evaluates an expression: at its start if there is no step. The answer is text, with what may be known of it
// besides.
func ask(t testing.TB, e promql.QueryEngine, on storage.Queryable, a asked) string {
	t.Helper()
	opts := promql.NewPrometheusQueryOpts(false, a.lookback)
	q, err := e.NewInstantQuery(t.Context(), on, opts, a.text, a.start)
	if a.step > 0 {
		q, err = e.NewRangeQuery(t.Context(), on, opts, a.text, a.start, a.end, a.step)
	}
	if err != nil {
		t.Fatalf("%s: %v", a.text, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	var warnings []string
	for _, w := range result.Warnings.AsErrors() {
		warnings = append(warnings, w.Error())
	}
	slices.Sort(warnings)
	if result.Err != nil {
		return fmt.Sprintf("error %v", result.Err)
	}
	series := strings.Split(result.Value.String(), "\n") // in any order
	slices.Sort(series)
	return fmt.Sprintf("%s\n%s\n%d samples", strings.Join(series, "\n"), strings.Join(warnings, "\n"),
		q.Stats().Samples.TotalSamples)
}

type asked struct {
	text       string
	start, end time.Time
	step       time.Duration // 0: once
	lookback   time.Duration
}

// counting counts the Selects that leave samples out.
type counting struct {
	*query.Querier
	windows atomic.Int64
}

func (c *counting) SelectWindows(
	ctx context.Context, mint, maxt int64, w *query.Windows, ms []*labels.Matcher,
) (query.SeriesSet, error) {
	c.windows.Add(1)
	return c.Querier.SelectWindows(ctx, mint, maxt, w, ms)
}

const engineStart = 20_000 * day

// Answers are to the bit the same whether samples that the engine does not look at are read or not, and those of a
// Prometheus TSDB.
func TestEngine_AnswersAsWithAllSamples(t *testing.T) {
	plain, seen := newEngine(t), new(counting)
	engine := promstore.Engine{QueryEngine: plain}
	rapid.Check(t, func(rt *rapid.T) {
		ours := newDatabase(t, stores["memory"](t))
		defer ours.Close()
		theirs := teststorage.New(t, func(o *tsdb.Options) {
			o.MinBlockDuration, o.MaxBlockDuration, o.OutOfOrderTimeWindow = 1000*day, 1000*day, 1000*day
			o.WALSegmentSize, o.StripeSize, o.EnableExemplarStorage = -1, 32, false
		})
		defer theirs.Close()
		writeEngineData(t, rt, ours, theirs)
		seen.Querier = ours.querier
		sparse := promstore.New(promstore.Config{Querier: seen})
		for range 12 {
			a := genAsked().Draw(rt, "query")
			want := ask(t, plain, ours, a)
			if got := ask(t, engine, sparse, a); got != want {
				rt.Fatalf("%+v:\n got %s\nwant %s", a, got, want)
			}
			if got := ask(t, plain, theirs, a); got != want {
				rt.Fatalf("%+v:\n     of all samples %s\nof Prometheus's TSDB %s", a, want, got)
			}
		}
	})
	t.Logf("%d selects left samples out", seen.windows.Load())
	if !t.Failed() && seen.windows.Load() == 0 {
		t.Error("no select left samples out")
	}
}

// writeEngineData writes some series over five days, with gaps and stale markers, some with histograms.
func writeEngineData(t *testing.T, rt *rapid.T, to ...storage.AppendableV2) {
	for i := range rapid.IntRange(1, 4).Draw(rt, "series") {
		ls := labels.FromStrings("__name__", []string{"m_total", "n", "target_info", "m_total"}[i], "job", "j",
			"instance", fmt.Sprint(i%3))
		interval := rapid.SampledFrom([]int64{15_000, 60_000, 7 * 60_000, 40 * 60_000, 3*mapping.HourMs + 1}).Draw(rt,
			"interval")
		kind := rapid.SampledFrom([]string{"numbers", "numbers", "numbers", "histograms", "both"}).Draw(rt, "kind")
		at := engineStart + rapid.OneOf(rapid.Int64Range(0, day), rapid.SampledFrom([]int64{0, 1})).Draw(rt, "from")
		var samples []sample
		for n := 0; n < 150 && at < engineStart+5*day; n++ {
			v := float64(n * n % 37)
			if kind == "histograms" || kind == "both" && n%50 > 25 {
				v = math.Float64frombits(histogramBits + uint64(n*n%13)*2)
			}
			switch rapid.IntRange(0, 40).Draw(rt, "event") {
			case 0:
				v = math.Float64frombits(value.StaleNaN)
				at += rapid.Int64Range(1, day).Draw(rt, "gap")
			case 1:
				at += rapid.Int64Range(1, day).Draw(rt, "gap")
			}
			samples = append(samples, sample{at, v})
			at += interval
		}
		for _, a := range to {
			write(t, a, ls, samples...)
		}
	}
}

func genAsked() *rapid.Generator[asked] {
	return rapid.Custom(func(t *rapid.T) asked {
		duration := func(what string, from ...time.Duration) time.Duration { return rapid.SampledFrom(from).Draw(t, what) }
		start := engineStart + rapid.Int64Range(0, 5*24).Draw(t, "hour")*mapping.HourMs +
			rapid.SampledFrom([]int64{0, 0, 1, 123_456}).Draw(t, "beside the hour")
		span := duration("span", 0, time.Hour, 20*time.Hour, 70*time.Hour)
		return asked{
			text:  genVector(3).Draw(t, "expression"),
			start: time.UnixMilli(start), end: time.UnixMilli(start).Add(span),
			step: duration("step", 0, time.Minute, 13*time.Minute, time.Hour, 5*time.Hour, 24*time.Hour,
				61*time.Second+time.Millisecond),
			lookback: duration("lookback", 0, time.Millisecond, time.Minute, 40*time.Minute, 2*time.Hour),
		}
	})
}

// genVector makes an expression of an instant vector, genRange one of a range vector.
func genVector(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		choice := rapid.IntRange(0, 9).Draw(t, "vector")
		if depth == 0 {
			choice = 0
		}
		vector := func() string { return genVector(depth-1).Draw(t, "of") }
		switch choice {
		case 1, 2, 3, 4:
			function := rapid.SampledFrom([]string{
				"rate", "increase", "delta", "irate", "resets", "changes", "sum_over_time", "avg_over_time", "last_over_time",
				"first_over_time", "count_over_time", "absent_over_time", "present_over_time", "max_over_time",
				"ts_of_max_over_time",
			}).Draw(t, "function")
			return function + "(" + genRange(depth-1).Draw(t, "range") + ")"
		case 5:
			function := rapid.SampledFrom([]string{"rate", "increase", "delta"}).Draw(t, "function")
			return function + "(" + genSelector("[40m]", "[2h]").Draw(t, "selector") + ")"
		case 6:
			return fmt.Sprintf("(%s) %s (%s)", vector(), rapid.SampledFrom([]string{"+", "or", "unless", "and", ">",
				"- on(job)"}).
				Draw(t, "operator"), vector())
		case 7:
			return rapid.SampledFrom([]string{"sum", "count", "max by (instance)", "avg", "group without (job)"}).Draw(t,
				"aggregation") +
				"(" + vector() + ")"
		case 8:
			return rapid.SampledFrom([]string{"timestamp", "abs", "absent", "histogram_count", "-"}).Draw(t, "function") +
				"(" + vector() + ")"
		case 9:
			return "info(" + vector() + ")"
		}
		return genSelector("").Draw(t, "selector")
	})
}

func genRange(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if depth <= 0 || rapid.Bool().Draw(t, "plain") {
			return genSelector("[1ms]", "[1m]", "[5m]", "[5m]", "[59m]", "[1h]", "[3h]", "[2d]").Draw(t, "selector")
		}
		resolution := rapid.SampledFrom([]string{
			"[1h:10m]", "[3h:1h]", "[2d:7h]", "[1d:1d]", "[12h:]", "[90m:61s]", "[5h:1h1ms]",
		}).Draw(t, "subquery")
		return "(" + genVector(depth-1).Draw(t, "inside") + ")" + resolution + genModifiers().Draw(t, "modifiers")
	})
}

func genSelector(ranges ...string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := rapid.SampledFrom([]string{"m_total", "n", `{job="j"}`, `m_total{instance="0"}`}).Draw(t, "matchers") +
			rapid.SampledFrom(ranges).Draw(t, "range")
		if !strings.Contains(text, "[1ms]") {
			text += rapid.SampledFrom([]string{"", "", "", "", " smoothed", " anchored"}).Draw(t, "edges")
		}
		return text + genModifiers().Draw(t, "modifiers")
	})
}

func genModifiers() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "", "", " offset 7m", " offset -3h", " offset 1d", " offset 1ms"}).Draw(t,
			"offset") +
			rapid.SampledFrom([]string{"", "", "", "", "", " @ start()", " @ end()",
				fmt.Sprintf(" @ %d", (engineStart+3*day)/1000)}).
				Draw(t, "at")
	})
}

// A selector of which a series far on has native histograms is read again, without giving a series twice.
func TestEngine_MeetsHistogramsLate(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	const hours = 1200 // of which half are read: more than the first block of a query
	for n := range 4 {
		var samples []sample
		for i := range int64(hours) {
			v := float64(i)
			if n == 2 || n == 3 && i > hours/2 {
				v = math.Float64frombits(histogramBits + uint64(i%9)*2)
			}
			samples = append(samples, sample{engineStart + i*mapping.HourMs, v},
				sample{engineStart + i*mapping.HourMs + 60_000, v})
		}
		write(t, db, labels.FromStrings("__name__", "m", "n", fmt.Sprint(n)), samples...)
	}
	plain := newEngine(t)
	for _, text := range []string{"m", "m @ end()", "rate(m[1h30m])", "count(m)"} {
		a := asked{text: text, start: time.UnixMilli(engineStart), step: 2 * time.Hour}
		a.end = a.start.Add(hours * time.Hour)
		if got, want := ask(t, promstore.Engine{QueryEngine: plain}, db, a), ask(t, plain, db, a); got != want {
			t.Errorf("%s:\n got %.1000s\nwant %.1000s", text, got, want)
		}
	}
}

// writeDays writes some series of a metric, each with a sample every five minutes of some days from engineStart on.
func writeDays(t *testing.T, db *database, metric string, series, days int, value func(i int64) float64) {
	t.Helper()
	for n := range series {
		var samples []sample
		for i := range int64(days * 24 * 12) {
			samples = append(samples, sample{engineStart + i*5*60_000, value(i)})
		}
		write(t, db, labels.FromStrings("__name__", metric, "n", fmt.Sprint(n)), samples...)
	}
}

// What a query reads grows with its steps, not with its range.
func TestEngine_ReadsWhatItLooksAt(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	const series, days = 3, 29
	writeDays(t, db, "m_total", series, days, func(i int64) float64 { return float64(i) })
	plain := newEngine(t)
	for _, c := range []struct {
		text  string
		step  time.Duration
		hours int // that are read
	}{
		{"sum(rate(m_total[10m]))", 24 * time.Hour, days},
		{"sum(rate(m_total[10m] offset 30m))", 24 * time.Hour, 2*days - 1}, // the first day begins with the data
		{"m_total", 24 * time.Hour, days},
		{"sum(m_total)", 6 * time.Hour, 4 * days},
		{"max_over_time(m_total[29d:1d])", 0, 2 * days}, // at midnight: the sample before, and one of that instant
		{"rate(m_total[10m] @ end())", 24 * time.Hour, 1},
		{"sum(rate(m_total[10m]))", 5 * time.Minute, days * 24},
	} {
		registry := prometheus.NewRegistry()
		config := db.querier.Config
		config.Registerer = registry
		on := promstore.New(promstore.Config{Querier: storetest.Must(query.New(config))})
		a := asked{text: c.text, start: time.UnixMilli(engineStart + mapping.HourMs/2), step: c.step}
		a.end = time.UnixMilli(engineStart + days*day - 1)
		if c.step == 0 {
			a.start = a.end
		}
		got, want := ask(t, promstore.Engine{QueryEngine: plain}, on, a), ask(t, plain, db, a)
		if got != want {
			t.Errorf("%s with a step of %v:\n got %.1000s\nwant %.1000s", c.text, c.step, got, want)
		}
		if rows := counted(t, registry, "promtsd_query_rows_total"); c.hours < days*24 && rows != float64(series*c.hours) {
			t.Errorf("%s with a step of %v: read %v rows, want %d", c.text, c.step, rows, series*c.hours)
		}
	}
}

func counted(t *testing.T, from prometheus.Gatherer, name string) float64 {
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// A panel of a month, of which a hundredth is looked at.
func BenchmarkEngine(b *testing.B) {
	const series, days, every = 200, 29, 15_000
	st, err := pebble.Open(pebble.Config{
		Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler), NoSync: true, CacheBytes: 1 << 30,
		Packing: pebble.Packing{Pack: pack.Append, Unpack: pack.Expand},
	})
	if err != nil {
		b.Fatal(err)
	}
	db := newDatabase(b, st)
	defer db.Close()
	settings := db.querier.Settings
	var points []byte
	for n := range uint32(mapping.HourMs / every) {
		points = mapping.AppendPoint(points, n*every, float64(n*n*13%1000))
	}
	qualifier, value := mapping.AppendCell(nil, nil, points)
	var batch store.Batch
	for n := range series {
		write(b, db, labels.FromStrings("__name__", "m_total", "n", fmt.Sprint(n)), sample{engineStart, 1})
	}
	found, err := db.querier.Index.Select(b.Context(), engineStart, engineStart, index.Limits{},
		equal("__name__", "m_total"))
	if err != nil || len(found.Series) != series {
		b.Fatal(len(found.Series), err)
	}
	for _, s := range found.Series {
		for h := range uint32(days * 24) {
			base := uint32(engineStart/1000) + h*3600
			row := settings.Schema.AppendRowKey(nil, s.TSUID, base)
			batch.Put(settings.Tables.Data, row, catalog.FamilyData, qualifier, 1, value)
			index.Writer{Tables: settings.Tables}.PutDay(&batch, s.TSUID, mapping.DayOf(int64(base)*1000), 1, nil)
		}
		if err := st.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		batch.Reset()
	}
	plain := newEngine(b)
	a := asked{text: "sum(rate(m_total[5m]))", step: 24 * time.Hour}
	a.start, a.end = time.UnixMilli(engineStart+mapping.HourMs/2), time.UnixMilli(engineStart+days*day-1)
	for name, engine := range map[string]promql.QueryEngine{"all": plain,
		"windows": promstore.Engine{QueryEngine: plain}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(b, engine, db, a)
			}
		})
	}
}
