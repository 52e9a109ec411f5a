package query_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

// database is a store with the write path and the read path on it.
type database struct{ querytest.Database }

var clock = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func openStore(t testing.TB) store.Store {
	st, err := pebble.Open(pebble.Config{Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func newDatabase(t testing.TB, st store.Store, requested map[string]string) *database {
	settings, _, err := catalog.Init(context.Background(), st, "promtsd", requested)
	if err != nil {
		t.Fatal(err)
	}
	return wire(st, settings)
}

func wire(st store.Store, settings catalog.Settings) *database {
	return &database{*querytest.Over(st, settings, querytest.Options{
		Now: func() time.Time { return clock }, Query: func(c *query.Config) { c.MaxSeries = 10_000 },
	})}
}

func (db *database) write(t testing.TB, ls labels.Labels, samples ...request.Sample) {
	var sorted []labels.Label
	ls.Range(func(l labels.Label) { sorted = append(sorted, l) })
	db.writeLabels(t, sorted, samples...)
}

// writeLabels writes the labels in the order given.
func (db *database) writeLabels(t testing.TB, ls []labels.Label, samples ...request.Sample) {
	var req request.Write
	var raw []byte
	for _, l := range ls {
		raw = request.AppendLabel(raw, l.Name, l.Value)
	}
	req.Series = append(req.Series, request.Series{Labels: raw, To: len(samples)})
	req.Samples = samples
	result, err := db.Appender.Append(context.Background(), &req)
	if err != nil {
		t.Fatal(err)
	}
	if result.Written != len(samples) || result.Refused != nil {
		t.Fatalf("write %d samples of %v: got %+v", len(samples), ls, result)
	}
}

// answer is what a Select gave, as text: comparable, and readable in a failure.
func (db *database) answer(t testing.TB, mint, maxt int64, ms ...*labels.Matcher) []string {
	set, err := db.Querier.Select(context.Background(), mint, maxt, false, ms)
	return read(t, set, err)
}

// read is what a set gives, as text.
func read(t testing.TB, set query.SeriesSet, err error) []string {
	if err != nil {
		t.Fatalf("select: %v", err)
	}
	defer set.Close()
	out := []string{}
	for set.Next() {
		text := set.Labels().String()
		for p := set.Points(); p != nil; p = set.Points() {
			if p.Len() == 0 {
				t.Fatalf("an empty run of %s", set.Labels())
			}
			for i := range p.T {
				text += formatSample(p.T[i], p.V[i])
			}
		}
		out = append(out, text)
	}
	if err := set.Err(); err != nil {
		t.Fatalf("select: %v", err)
	}
	return out
}

func formatSample(t int64, v float64) string { return fmt.Sprintf(" %d=%016x", t, math.Float64bits(v)) }

// model is the brute force: everything that was written, the last value of each time.
type model remotetest.Model

func (m model) write(ls labels.Labels, samples ...request.Sample) {
	remotetest.Model(m).Add(ls, samples...)
}

func (m model) answer(mint, maxt int64, ms ...*labels.Matcher) []string {
	out := []string{}
	for _, s := range remotetest.Model(m).Read(mint, maxt, ms) {
		text := s.Labels.String()
		for _, p := range s.Samples {
			text += formatSample(p.T, p.V)
		}
		out = append(out, text)
	}
	return out
}

var (
	words  = []string{"a", "b", "ab", "abc", "é", "x y", "指标", "a|b", "0"}
	values = []float64{0, math.Copysign(0, -1), 1, -1, 127, 128, -32769, 1 << 31, 1 << 40, 1 << 62, 1e300, 0.1, 1.5,
		5e-324,
		math.Inf(1), math.Inf(-1), math.Float64frombits(0x7ff0000000000002), math.Float64frombits(0x7ff8000000000001),
		math.Float64frombits(0xfff8000000abcdef)}
)

func genLabels() *rapid.Generator[labels.Labels] {
	return rapid.Custom(func(t *rapid.T) labels.Labels {
		b := labels.NewBuilder(labels.EmptyLabels())
		if rapid.IntRange(0, 9).Draw(t, "named") > 0 {
			b.Set("__name__", rapid.SampledFrom(words).Draw(t, "metric"))
		}
		for range rapid.IntRange(0, 4).Draw(t, "labels") {
			b.Set(rapid.SampledFrom(words).Draw(t, "name"), rapid.SampledFrom(words).Draw(t, "value"))
		}
		return b.Labels()
	})
}

func genMatcher() *rapid.Generator[*labels.Matcher] {
	return rapid.Custom(func(t *rapid.T) *labels.Matcher {
		name := rapid.SampledFrom(append([]string{"__name__", "__name__", "nosuch"}, words...)).Draw(t, "name")
		typ := rapid.SampledFrom([]labels.MatchType{
			labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
		}).Draw(t, "type")
		value := rapid.SampledFrom(append([]string{"", "zz"}, words...)).Draw(t, "value")
		if typ == labels.MatchRegexp || typ == labels.MatchNotRegexp {
			value = rapid.SampledFrom([]string{
				"", ".*", ".+", "a|b", "a.*", "(?i)A", "[^a]*", "é|指标|zz", "a?", "nosuch|",
			}).Draw(t, "regexp")
		}
		return labels.MustNewMatcher(typ, name, value)
	})
}

var schemas = map[string]map[string]string{
	"default": nil,
	"salted":  {catalog.SaltWidth: "1", catalog.SaltBuckets: "7"},
	"wide": {catalog.MetricWidth: "4", catalog.TagkWidth: "2", catalog.TagvWidth: "8", catalog.SaltWidth: "2",
		catalog.SaltBuckets: "300"},
	"escaped": {catalog.NamesMode: "opentsdb"},
}

func TestSelect_AnswersAsBruteForce(t *testing.T) {
	for name, asked := range schemas {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { checkAgainstModel(t, rt, newDatabase(t, storetest.NewMem(), asked)) })
		})
	}
}

func TestSelect_OfTheEmbeddedStoreAnswersAsBruteForce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := openStore(t)
		defer st.Close()
		asked := schemas[rapid.SampledFrom(slices.Sorted(maps.Keys(schemas))).Draw(rt, "schema")]
		checkAgainstModel(t, rt, newDatabase(t, st, asked))
	})
}

func checkAgainstModel(t *testing.T, rt *rapid.T, db *database) {
	m := model{}
	// The index reads days up to 40 of them, and beyond the list of all series.
	start := clock.UnixMilli() - 60*24*3600_000
	genTime := rapid.OneOf(
		rapid.Int64Range(start, start+4*3600_000),
		rapid.Int64Range(start, clock.UnixMilli()),
		rapid.SampledFrom([]int64{start, start + 1, clock.UnixMilli()}),
	)
	for range rapid.IntRange(1, 20).Draw(rt, "writes") {
		ls := genLabels().Draw(rt, "series")
		var samples []request.Sample
		for range rapid.IntRange(1, 8).Draw(rt, "samples") {
			samples = append(samples, request.Sample{T: genTime.Draw(rt, "t"), V: rapid.SampledFrom(values).Draw(rt, "v")})
		}
		var sent []labels.Label
		ls.Range(func(l labels.Label) { sent = append(sent, l) })
		db.writeLabels(t, rapid.Permutation(sent).Draw(rt, "labels as sent"), samples...)
		m.write(ls, samples...)
	}
	// The same tables without an index: series are found by row keys.
	bare := db.Settings
	bare.IndexComplete = false
	byRowKeys := wire(db.Store, bare)
	for range 6 {
		db.Querier.SetBlockPoints(rapid.SampledFrom([]int{0, 5, 8 << 20}).Draw(rt, "points of a block"))
		mint, maxt := genTime.Draw(rt, "mint"), genTime.Draw(rt, "maxt")
		ms := rapid.SliceOfN(genMatcher(), 1, 3).Draw(rt, "matchers")
		want := m.answer(mint, maxt, ms...)
		if got := db.answer(t, mint, maxt, ms...); !slices.Equal(got, want) {
			rt.Fatalf("select %v from %d to %d:\n got %q\nwant %q", ms, mint, maxt, got, want)
		}
		if got := byRowKeys.answer(t, mint, maxt, ms...); !slices.Equal(got, want) {
			rt.Fatalf("select by row keys %v from %d to %d:\n got %q\nwant %q", ms, mint, maxt, got, want)
		}
	}
}
