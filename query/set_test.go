package query_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

const (
	day   = 24 * mapping.HourMs
	start = 1000 * mapping.HourMs // of the samples that fill writes
)

func named(name string) []*labels.Matcher {
	return []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", name)}
}

// fill writes the samples of the metric m, a series for each value of the label n, and returns the model of them.
func (db *database) fill(t testing.TB, series, samples int, step int64) model {
	m := model{}
	for n := range series {
		ls := labels.FromStrings("__name__", "m", "n", fmt.Sprintf("%04d", n))
		var written []request.Sample
		for i := range samples {
			written = append(written, request.Sample{T: start + int64(i)*step + int64(n), V: float64(i)})
		}
		db.write(t, ls, written...)
		m.write(ls, written...)
	}
	return m
}

// withQuerier is the database with another querier on a store before the same tables.
func (db *database) withQuerier(st store.Store, change func(*query.Config)) *database {
	other := querytest.Over(st, db.Settings, querytest.Options{Query: change})
	other.Appender = db.Appender
	return &database{*other}
}

func check(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: got %d series, want %d; of series %d:\n got %.500q\nwant %.500q", what, len(got), len(want), i,
				got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
		}
	}
}

func TestSelect_OfAnyShapeAnswersAsBruteForce(t *testing.T) {
	for _, c := range []struct {
		name            string
		series, samples int
		step            int64
	}{
		{"a long thin series", 1, 30, 997 * mapping.HourMs}, // 29,000 rows asked for, more than any block
		{"long thin series", 3, 20, 500 * mapping.HourMs},
		{"many series of an hour", 3000, 3, 60_000},
		{"series of some hours", 300, 10, mapping.HourMs},
		{"dense series", 2, 800, 6000},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := newDatabase(t, storetest.NewMem(), nil)
			m := db.fill(t, c.series, c.samples, c.step)
			end := start + int64(c.samples)*c.step + int64(c.series)
			for _, points := range []int{8 << 20, c.series * c.samples / 10} {
				db.Querier.SetBlockPoints(points)
				for _, span := range [][2]int64{
					{start, end}, {start + c.step/2, end - c.step/2}, {start + 2*c.step, start + 2*c.step + 1}, {end, start},
				} {
					want := m.answer(span[0], span[1], named("m")...)
					check(t, fmt.Sprintf("from %d to %d, blocks of %d", span[0], span[1], points),
						db.answer(t, span[0], span[1], named("m")...), want)
				}
			}
		})
	}
}

func TestSelect_AtTheEndsOfTime(t *testing.T) {
	db, m := newDatabase(t, storetest.NewMem(), nil), model{}
	ls := labels.FromStrings("__name__", "m")
	samples := []request.Sample{{T: 0, V: 1}, {T: 1, V: 2}, {T: mapping.MaxTime - 1, V: 3}, {T: mapping.MaxTime, V: 4}}
	db.write(t, ls, samples...)
	m.write(ls, samples...)
	for _, span := range [][2]int64{
		{-1 << 63, 0}, {-1 << 63, mapping.HourMs}, {1, 1}, {mapping.MaxTime, 1<<63 - 1}, {mapping.MaxTime - day, 1<<63 - 1},
		{mapping.MaxTime + 1, 1<<63 - 1}, {-1 << 63, -1}, {mapping.MaxTime, 0},
	} {
		check(t, fmt.Sprint(span), db.answer(t, span[0], span[1], named("m")...), m.answer(span[0], span[1], named("m")...))
	}
}

// Next may be called before the points of a series are all taken, wherever the blocks end.
func TestSet_NextPassesOverPointsThatWereNotTaken(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	for _, c := range []struct {
		series, samples int
		step            int64
	}{{3, 30, 700 * mapping.HourMs}, {1000, 3, mapping.HourMs}} {
		db.fill(t, c.series, c.samples, c.step)
		for taken := range 3 {
			set, err := db.Querier.Select(t.Context(), start, start+int64(c.samples)*c.step, false, named("m"))
			if err != nil {
				t.Fatal(err)
			}
			if set.Points() != nil {
				t.Error("there are points before the first series")
			}
			var got []string
			for set.Next() {
				got = append(got, set.Labels().Get("n"))
				for i := range taken {
					if p := set.Points(); p == nil || p.Len() == 0 || p.V[0] != float64(i) {
						t.Fatalf("run %d of series %s is %v", i, set.Labels(), p)
					}
				}
			}
			if set.Next() || set.Points() != nil || set.Err() != nil {
				t.Errorf("after the end: a series, points, or the error %v", set.Err())
			}
			set.Close()
			if len(got) != c.series || !slices.IsSorted(got) || len(slices.Compact(got)) != c.series {
				t.Errorf("%d runs taken of each: got %d series, want %d", taken, len(got), c.series)
			}
		}
	}
}

// putName makes a stored name, which need not be UTF-8.
func (db *database) putName(t testing.TB, kind mapping.Kind, id mapping.UID, stored string) {
	var b store.Batch
	row := db.Settings.Schema.AppendUID(nil, kind, id)
	b.Put(db.Settings.Tables.UID, row, "name", []byte(kind.String()), 1, []byte(stored))
	b.Put(db.Settings.Tables.UID, []byte(stored), "id", []byte(kind.String()), 1, row)
	if err := db.Store.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// putCell writes one cell of a data row, and the index rows of its series.
func (db *database) putCell(t testing.TB, tsuid []byte, base uint32, qualifier, value []byte) {
	var b store.Batch
	b.Put(db.Settings.Tables.Data, db.Settings.Schema.AppendRowKey(nil, tsuid, base), "t", qualifier, 1, value)
	w := index.Writer{Tables: db.Settings.Tables}
	w.PutSeries(&b, tsuid, 1)
	w.PutDay(&b, tsuid, mapping.DayOf(int64(base)*1000), 1, nil)
	if err := db.Store.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func TestSelect_MergesTheTSUIDsOfOneLabelSet(t *testing.T) {
	for name, asked := range schemas {
		t.Run(name, func(t *testing.T) {
			db, m := newDatabase(t, storetest.NewMem(), asked), model{}
			// é has three spellings at most; here it is a metric, a tagk and a tagv in ISO-8859-1 and in UTF-8.
			for _, kind := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
				db.putName(t, kind, 100, "\xe9")
				db.putName(t, kind, 101, "é")
			}
			db.putName(t, mapping.Metric, 102, "z")
			ls := labels.FromStrings("__name__", "é", "é", "é")
			const base = 1_000_000 / 3600 * 3600
			i := 0
			for metric := mapping.UID(100); metric < 102; metric++ {
				for pair := range mapping.UID(4) {
					tag := mapping.Tag{Key: 100 + pair%2, Value: 100 + pair/2}
					tsuid := db.Settings.Schema.AppendTSUID(nil, metric, []mapping.Tag{tag})
					for hour := range uint32(40) {
						offset := uint32(i*7919+int(hour)) % mapping.HourMs
						qualifier := mapping.AppendQualifier(nil, offset, 0)
						db.putCell(t, tsuid, base+hour*3600*20, qualifier, []byte{byte(i)})
						m.write(ls, request.Sample{T: int64(base+hour*3600*20)*1000 + int64(offset), V: float64(i)})
						// One instant that all have.
						db.putCell(t, tsuid, base+hour*3600*20, mapping.AppendQualifier(nil, 5, 0), []byte{1})
						m.write(ls, request.Sample{T: int64(base+hour*3600*20)*1000 + 5, V: 1})
					}
					i++
				}
			}
			other := db.Settings.Schema.AppendTSUID(nil, 102, []mapping.Tag{{Key: 100, Value: 100}})
			db.putCell(t, other, base, mapping.AppendQualifier(nil, 0, 0), []byte{9})
			m.write(labels.FromStrings("__name__", "z", "é", "é"), request.Sample{T: base * 1000, V: 9})
			matchers := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "é", "é")}
			for _, points := range []int{8 << 20, 10, 0} {
				db.Querier.SetBlockPoints(points)
				for _, end := range []int64{base * 1000, base*1000 + mapping.HourMs, base*1000 + 800*mapping.HourMs} {
					check(t, fmt.Sprintf("to %d, blocks of %d", end, points), db.answer(t, base*1000, end, matchers...),
						m.answer(base*1000, end, matchers...))
				}
			}
			set, err := db.Querier.Select(t.Context(), base*1000, base*1000, true, matchers)
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			n := 0
			for set.Next() {
				n++
			}
			if n != 2 {
				t.Errorf("labels only: got %d series, want 2", n)
			}
		})
	}
}

func TestSelect_PassesOverCellsThatCannotBeRead(t *testing.T) {
	st := storetest.NewMem()
	db := newDatabase(t, st, nil)
	db.write(t, labels.FromStrings("__name__", "m"), request.Sample{T: 1, V: 1}, request.Sample{T: 2, V: 2})
	row := []byte{0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1}
	var b store.Batch
	b.Put("tsdb", row, "t", nil, 1, []byte("no qualifier"))
	b.Put("tsdb", row, "t", []byte{0xf0, 0, 0, 0xc0 | 7}, 1, []byte{1, 2}) // 2 bytes for 8
	b.Put("tsdb", row, "t", []byte{1, 0, 0}, 1, []byte("{}"))              // an annotation
	// 3601 s into its hour: it would come after samples of the next row.
	b.Put("tsdb", row, "t", mapping.AppendQualifier(nil, mapping.HourMs+1000, 0), 1, []byte{7})
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	db.write(t, labels.FromStrings("__name__", "m"), request.Sample{T: mapping.HourMs, V: 3})
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	other := db.withQuerier(st, func(c *query.Config) {
		c.Logger, c.Registerer = slog.New(slog.NewTextHandler(&log, nil)), registry
	})
	want := []string{`{__name__="m"}` + formatSample(1, 1) + formatSample(2, 2) + formatSample(mapping.HourMs, 3)}
	check(t, "with corrupt cells", other.answer(t, 0, day, named("m")...), want)
	if got := strings.Count(log.String(), `row="m{} 1970-01-01T00:00:00Z"`); got != 2 {
		t.Errorf("%d lines that name the row were logged, want 2:\n%s", got, &log)
	}
	const metrics = `
# HELP promtsd_query_corrupt_cells_total Data cells passed over because they cannot be read.
# TYPE promtsd_query_corrupt_cells_total counter
promtsd_query_corrupt_cells_total 2
# HELP promtsd_query_samples_total Samples decoded inside the time range of their query.
# TYPE promtsd_query_samples_total counter
promtsd_query_samples_total 3
# HELP promtsd_query_series_total Series that matched a selector.
# TYPE promtsd_query_series_total counter
promtsd_query_series_total 1
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(metrics),
		"promtsd_query_corrupt_cells_total", "promtsd_query_samples_total", "promtsd_query_series_total")
	if err != nil {
		t.Error(err)
	}
}

func TestSelect_LabelsOnlyYieldsTheSeriesOfTheDays(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	db.fill(t, 5, 1, 1)
	for _, c := range []struct {
		mint, maxt int64
		want       int
	}{{start + 1, start + 1, 5}, {start - day, start - day, 0}, {start + day, start, 0}} {
		set, err := db.Querier.Select(t.Context(), c.mint, c.maxt, true, named("m"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for set.Next() {
			if got, want := set.Labels().String(), fmt.Sprintf(`{__name__="m", n="%04d"}`, n); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if set.Points() != nil {
				t.Errorf("%s has points", set.Labels())
			}
			n++
		}
		if n != c.want || set.Err() != nil {
			t.Errorf("from %d to %d: got %d series, %v, want %d", c.mint, c.maxt, n, set.Err(), c.want)
		}
		set.Close()
	}
}

func TestSelect_RefusesSeriesThatTakeTooMuchMemory(t *testing.T) {
	st := storetest.NewMem()
	db := newDatabase(t, st, nil)
	db.fill(t, 5, 1, 1)
	for most, refused := range map[int64]bool{0: false, 400: true, 10_000: false} {
		_, ctx := withAccount(t, most)
		set, err := db.Querier.Select(ctx, start, start, true, named("m"))
		if err == nil {
			set.Close()
		}
		if refused != errors.Is(err, budget.ErrTooLarge) || refused && !strings.Contains(err.Error(), "400 bytes") {
			t.Errorf("at most %d bytes: got %v", most, err)
		}
	}
}

// withAccount returns a context with an account of so many bytes, 0 for many, and the budget that it is of. When the
// test is over everything must have been given back before the account was closed.
func withAccount(t *testing.T, bytes int64) (*budget.Budget, context.Context) {
	t.Helper()
	b, err := budget.New(budget.Config{Total: 1 << 30, Request: bytes})
	if err != nil {
		t.Fatal(err)
	}
	a := b.Open()
	t.Cleanup(a.Close)
	return b, budget.NewContext(t.Context(), a)
}

// What a set holds is taken from the account while it is read, and is all given back when it is closed, wherever that
// is.
func TestSelect_HoldsWhatItReadsAndGivesItBack(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	db.fill(t, 300, 3, 40)
	for _, c := range []struct {
		name   string
		series int // that are read
		most   int64
		want   error
	}{
		{name: "all", series: 300},
		{name: "none", series: 0},
		{name: "some", series: 7},
		{name: "too much", series: 300, most: 300_000, want: budget.ErrTooLarge},
	} {
		b, ctx := withAccount(t, c.most)
		set, err := db.Querier.Select(ctx, start, start+3*mapping.HourMs, false, named("m"))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		most := int64(0)
		for range c.series {
			if !set.Next() {
				break
			}
			for set.Points() != nil {
				most = max(most, b.Held())
			}
		}
		if err := set.Err(); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if c.name == "all" && most < 300*3*40*16 {
			t.Errorf("%s: %d bytes were held, fewer than the samples have", c.name, most)
		}
		set.Close()
		if held := b.Held(); held > 1<<19 { // which an account keeps, to take again
			t.Errorf("%s: %d bytes are held by a set that is closed", c.name, held)
		}
	}
}

// A block of one row cannot be divided, though it may be one of many hours at which other series have rows.
func TestSelect_EndsWhenOneRowFillsABlock(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	begin := int64(start) / day * day
	late := begin + day - mapping.HourMs
	two := func(at int64) []request.Sample { return []request.Sample{{T: at, V: 1}, {T: at + 1, V: 2}} }
	db.write(t, labels.FromStrings("__name__", "m", "n", "0"), two(late)...)
	db.write(t, labels.FromStrings("__name__", "m", "n", "1"), append(two(late), two(begin+day)...)...)
	db.Querier.SetBlockPoints(1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	set, err := db.Querier.Select(ctx, late, begin+2*day-1, false, named("m"))
	if got := read(t, set, err); len(got) != 2 {
		t.Errorf("got %q, want two series", got)
	}
}

func TestSelect_RefusesMoreSeriesThanAllowed(t *testing.T) {
	st := storetest.NewMem()
	db := newDatabase(t, st, nil)
	db.fill(t, 5, 1, 1)
	for limit, refused := range map[int]bool{0: false, 4: true, 5: false} {
		other := db.withQuerier(st, func(c *query.Config) { c.MaxSeries = limit })
		for _, labelsOnly := range []bool{true, false} {
			matchers := append(named("m"), labels.MustNewMatcher(labels.MatchNotEqual, "n", `"`))
			set, err := other.Querier.Select(t.Context(), start, start, labelsOnly, matchers)
			if err == nil {
				set.Close()
			}
			if refused != errors.Is(err, query.ErrLimit) || !refused && err != nil {
				t.Errorf("limit %d: got %v", limit, err)
			}
			const want = `query limit exceeded: more than 4 series match {__name__="m", n!="\""}; ` +
				"narrow the selector, or raise --query.max-series"
			if refused && err.Error() != want {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		}
	}
}

// drain takes what a set has and returns the number of its runs.
func drain(set query.SeriesSet) (runs int) {
	for set.Next() {
		for p := set.Points(); p != nil; p = set.Points() {
			runs++
		}
	}
	return runs
}

func TestSet_EndsWithItsContextAndLeavesNothingBehind(t *testing.T) {
	db := newDatabase(t, storetest.NewMem(), nil)
	db.fill(t, 3, 30, 700*mapping.HourMs)
	ignore := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	set, err := db.Querier.Select(ctx, start, start+30*700*mapping.HourMs, false, named("m"))
	if err != nil {
		t.Fatal(err)
	}
	if !set.Next() || set.Points() == nil {
		t.Fatalf("there is no first series: %v", set.Err())
	}
	cancel()
	if runs := drain(set); runs >= 89 || !errors.Is(set.Err(), context.Canceled) {
		t.Errorf("got %d more runs and the error %v, want context.Canceled", runs, set.Err())
	}
	if set.Next() || set.Points() != nil {
		t.Error("there is more after the error")
	}
	set.Close()
	goleak.VerifyNone(t, ignore)
}

// gate holds reads of the data table back until their context ends.
type gate struct{ store.Store }

func (g gate) Get(ctx context.Context, get store.Get) iter.Seq2[store.Row, error] {
	if get.Table != "tsdb" {
		return g.Store.Get(ctx, get)
	}
	return func(yield func(store.Row, error) bool) {
		<-ctx.Done()
		yield(store.Row{}, ctx.Err())
	}
}

func TestSet_CloseStopsWhatIsBeingRead(t *testing.T) {
	st := storetest.NewMem()
	db := newDatabase(t, st, nil)
	db.fill(t, 3, 30, 700*mapping.HourMs)
	ignore := goleak.IgnoreCurrent()
	set, err := db.withQuerier(gate{st}, nil).Querier.Select(t.Context(), start, start+day, false, named("m"))
	if err != nil {
		t.Fatal(err)
	}
	set.Close()
	set.Close()
	for taken := range 5 {
		set, err := db.Querier.Select(t.Context(), start, start+30*700*mapping.HourMs, false, named("m"))
		if err != nil {
			t.Fatal(err)
		}
		for range taken {
			set.Next()
			set.Points()
		}
		set.Close()
	}
	goleak.VerifyNone(t, ignore)
}

func TestSet_AnErrorOfTheStoreEndsIt(t *testing.T) {
	st := storetest.NewMem()
	db := newDatabase(t, st, nil)
	m := db.fill(t, 3, 10, 2000*mapping.HourMs)
	const end = start + 20_000*mapping.HourMs
	want := strings.Join(m.answer(start, end, named("m")...), "\n")
	for _, when := range []storetest.When{storetest.Before, storetest.Midway, storetest.After} {
		for call := 1; ; call++ {
			faulty := storetest.Faulty(st, storetest.Fault{Call: call, When: when, Rows: 1})
			set, err := db.withQuerier(faulty, nil).Querier.Select(t.Context(), start, end, false, named("m"))
			got := ""
			if err == nil {
				for set.Next() {
					if got != "" {
						got += "\n"
					}
					got += set.Labels().String()
					for p := set.Points(); p != nil; p = set.Points() {
						for i := range p.T {
							got += formatSample(p.T[i], p.V[i])
						}
					}
				}
				err = set.Err()
				set.Close()
			}
			if faulty.Calls(storetest.Any) < call {
				if err != nil || got != want || call < 8 {
					t.Errorf("after %d calls: got %v,\n%s\nwant\n%s", call-1, err, got, want)
				}
				break
			}
			if !errors.Is(err, store.ErrUnavailable) || !strings.HasPrefix(want, got) {
				t.Errorf("call %d failing: got %v after\n%s", call, err, got)
			}
		}
	}
}
