package promstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"go.uber.org/goleak"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
)

// fill writes n series of the metric m, of so many samples 1 s apart.
func fill(t testing.TB, db *database, series, samples int) {
	for n := range series {
		var written []sample
		for i := range samples {
			written = append(written, sample{int64(i) * 1000, float64(i) * 1.1})
		}
		write(t, db, labels.FromStrings("__name__", "m", "n", fmt.Sprintf("%04d", n)), written...)
	}
}

// withAccount returns a context with an account of so many bytes, 0 for many.
func withAccount(t testing.TB, bytes int64) context.Context {
	t.Helper()
	b, err := budget.New(budget.Config{Total: 1 << 30, Request: bytes})
	if err != nil {
		t.Fatal(err)
	}
	a := b.Open()
	t.Cleanup(a.Close)
	return budget.NewContext(t.Context(), a)
}

func TestSelect_EndsWhereMemoryEnds(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	fill(t, db, 4, 5000)
	selectors := func(max int64) error {
		ctx := withAccount(t, max)
		q, err := promstore.New(promstore.Config{Querier: db.querier}).Querier(0, day)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		// The bound is one for all selectors of a query.
		for _, n := range []string{"0000|0001", "0002|0003"} {
			set := q.Select(ctx, false, nil, labels.MustNewMatcher(labels.MatchRegexp, "n", n))
			for set.Next() {
			}
			if set.Err() != nil {
				if set.Next() {
					t.Error("the set goes on after its error")
				}
				return set.Err()
			}
		}
		return nil
	}
	// Two times 10,000 samples of 8.x bytes each, as no two values are alike, and a page into which they are read.
	for max, fits := range map[int64]bool{0: true, 600_000: true, 400_000: false, 300_000: false, 1: false} {
		err := selectors(max)
		if fits && err != nil || !fits && !errors.Is(err, budget.ErrTooLarge) {
			t.Errorf("%d bytes: got %v", max, err)
		}
		if !fits && !strings.Contains(err.Error(), "--query.max-memory-bytes") {
			t.Errorf("%v does not name its flag", err)
		}
	}
}

func TestSelect_KeepsTheBitsOfStaleMarkers(t *testing.T) {
	db := newDatabase(t, stores["pebble"](t))
	defer db.Close()
	stale := math.Float64frombits(value.StaleNaN)
	write(t, db, labels.FromStrings("__name__", "m"), sample{1, 1}, sample{2, stale}, sample{3, math.NaN()})
	got := selected(t, db, 0, day, nil, []*labels.Matcher{equal("__name__", "m")})
	want := []string{`{__name__="m"}` + sample{1, 1}.String() + sample{2, stale}.String() + sample{3, math.NaN()}.String()}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSelect_HeedsTheLimit(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	fill(t, db, 5, 1)
	q, err := db.Querier(0, day)
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]int{0: 5, 1: 1, 4: 4, 5: 5, 6: 5} {
		for _, function := range []string{"", "series"} {
			hints := &storage.SelectHints{End: day, Limit: limit, Func: function}
			got := texts(t, q.Select(t.Context(), false, hints, equal("__name__", "m")))
			if len(got) != want || !slices.IsSorted(got) {
				t.Errorf("limit %d: got %q, want %d series", limit, got, want)
			}
		}
		names, _, err := q.LabelValues(t.Context(), "n", &storage.LabelHints{Limit: limit})
		if err != nil || len(names) != want || !slices.IsSorted(names) {
			t.Errorf("limit %d: got values %q, %v, want %d", limit, names, err, want)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestSelect_ForSeriesReadsNoSamples(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	fill(t, db, 2, 1)
	q, err := db.Querier(1, day-1) // the samples are at 0, on the same day
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	want := []string{`{__name__="m", n="0000"}`, `{__name__="m", n="0001"}`}
	hints := &storage.SelectHints{Start: 1, End: day - 1, Func: "series"}
	if got := texts(t, q.Select(t.Context(), false, hints, equal("__name__", "m"))); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	hints.Func = ""
	if got := texts(t, q.Select(t.Context(), false, hints, equal("__name__", "m"))); len(got) > 0 {
		t.Errorf("with samples: got %q, want none", got)
	}
}

func TestQuerier_CloseEndsWhatIsRead(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	fill(t, db, 3, 10)
	ignore := goleak.IgnoreCurrent()
	q, err := db.Querier(0, day)
	if err != nil {
		t.Fatal(err)
	}
	var sets []storage.SeriesSet
	for range 3 {
		sets = append(sets, q.Select(t.Context(), false, nil, equal("__name__", "m")))
	}
	if !sets[0].Next() || !sets[1].Next() {
		t.Fatal("there are no series")
	}
	if err := errors.Join(q.Close(), q.Close()); err != nil {
		t.Error(err)
	}
	if sets[2].Next() || sets[2].Err() == nil {
		t.Error("a set begins after its querier's end")
	}
	goleak.VerifyNone(t, ignore)
}

// scripted is a Querier whose sets are given.
type scripted struct {
	warnings []error
	failing  bool // in the second run of the only series
	err      error
}

func (s *scripted) SelectWindows(
	context.Context, int64, int64, *query.Windows, []*labels.Matcher,
) (query.SeriesSet, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &scriptedSet{scripted: s}, nil
}

func (s *scripted) Series(
	ctx context.Context, mint, maxt int64, _ int, ms []*labels.Matcher,
) (query.SeriesSet, error) {
	return s.SelectWindows(ctx, mint, maxt, nil, ms)
}

func (s *scripted) LabelNames(context.Context, int64, int64, int, []*labels.Matcher) ([]string, error) {
	return nil, s.err
}

func (s *scripted) LabelValues(context.Context, string, int64, int64, int, []*labels.Matcher) ([]string, error) {
	return nil, s.err
}

type scriptedSet struct {
	*scripted
	series, runs int
}

var errScripted = errors.New("scripted")

func (s *scriptedSet) Next() bool            { s.series++; return s.series == 1 }
func (s *scriptedSet) Labels() labels.Labels { return labels.FromStrings("__name__", "m") }
func (s *scriptedSet) Warnings() []error     { return s.warnings }
func (s *scriptedSet) Close()                {}

func (s *scriptedSet) Points() *mapping.Points {
	if s.runs++; s.runs > 1 {
		return nil
	}
	return &mapping.Points{T: []int64{1}, V: []float64{1}}
}

func (s *scriptedSet) Err() error {
	if s.failing && s.runs > 1 {
		return errScripted
	}
	return nil
}

func TestSelect_FailsAsItsSourceFails(t *testing.T) {
	for name, source := range map[string]*scripted{"at once": {err: errScripted}, "inside a series": {failing: true}} {
		q, err := promstore.New(promstore.Config{Querier: source}).Querier(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		set := q.Select(t.Context(), false, nil)
		if set.Next() || !errors.Is(set.Err(), errScripted) {
			t.Errorf("%s: got %v", name, set.Err())
		}
		if _, _, err := q.LabelNames(t.Context(), nil); source.err != nil && !errors.Is(err, errScripted) {
			t.Errorf("%s: got %v from LabelNames", name, err)
		}
	}
}

func TestSelect_PassesWarningsOn(t *testing.T) {
	source := &scripted{warnings: []error{errors.New("promtsd b cannot be asked")}}
	q, err := promstore.New(promstore.Config{Querier: source}).Querier(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, warnings []error) {
		if len(warnings) != 1 || warnings[0] != source.warnings[0] {
			t.Errorf("%s: got %v", what, warnings)
		}
	}
	set := q.Select(t.Context(), false, nil)
	for set.Next() {
	}
	check("samples", set.Warnings().AsErrors())
	// The API asks for them before the first series.
	check("series", q.Select(t.Context(), false, &storage.SelectHints{End: 1, Func: "series"}).Warnings().AsErrors())
}

func BenchmarkSelect(b *testing.B) {
	db := newDatabase(b, stores["pebble"](b))
	defer db.Close()
	const series, samples = 100, 1440
	fill(b, db, series, samples)
	for _, read := range []bool{false, true} {
		b.Run(map[bool]string{false: "hold", true: "hold and read"}[read], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q, err := db.Querier(0, day)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for set := q.Select(b.Context(), false, nil, equal("__name__", "m")); set.Next(); {
					if !read {
						continue
					}
					for it := set.At().Iterator(nil); it.Next() != 0; {
						n++
					}
				}
				if read && n != series*samples {
					b.Fatalf("got %d samples", n)
				}
				q.Close()
			}
			b.ReportMetric(float64(series*samples*b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
