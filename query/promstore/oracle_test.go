package promstore_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/teststorage"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
)

const day = 24 * mapping.HourMs

var (
	words  = []string{"a", "b", "ab", "abc", "é", "x y", "指标", "a|b", "0"}
	values = []float64{0, math.Copysign(0, -1), 1, -1, 128, 1 << 40, 1e300, 0.1, 5e-324, math.Inf(1), math.Inf(-1),
		math.Float64frombits(0x7ff0000000000002), math.Float64frombits(0x7ff8000000000001),
		math.Float64frombits(0xfff8000000abcdef), math.Float64frombits(histogramBits),
		math.Float64frombits(histogramBits + 1),
		math.Float64frombits(histogramBits + 8), math.Float64frombits(histogramBits + 9)}
)

func genLabels() *rapid.Generator[labels.Labels] {
	return rapid.Custom(func(t *rapid.T) labels.Labels {
		b := labels.NewBuilder(labels.EmptyLabels())
		named := rapid.IntRange(0, 9).Draw(t, "named") > 0
		if named {
			b.Set("__name__", rapid.SampledFrom(words).Draw(t, "metric"))
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "labels") {
			b.Set(words[i], rapid.SampledFrom(words).Draw(t, "value"))
		}
		if !named { // the TSDB takes no series without labels
			b.Set("z", rapid.SampledFrom(words).Draw(t, "value"))
		}
		return b.Labels()
	})
}

func genMatcher() *rapid.Generator[*labels.Matcher] {
	return rapid.Custom(func(t *rapid.T) *labels.Matcher {
		name := rapid.SampledFrom([]string{"__name__", "__name__", "a", "b", "ab", "abc", "z", "none"}).Draw(t, "name")
		kind := rapid.SampledFrom([]labels.MatchType{
			labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
		}).Draw(t, "type")
		value := rapid.SampledFrom(append([]string{"", "zz"}, words...)).Draw(t, "value")
		if kind == labels.MatchRegexp || kind == labels.MatchNotRegexp {
			value = rapid.SampledFrom([]string{
				"", ".*", ".+", "a|b", "a.*", "(?i)A", "[^a]*", "é|指标|zz", "a?", "none|",
			}).Draw(t, "regexp")
		}
		return labels.MustNewMatcher(kind, name, value)
	})
}

// Whatever is asked of promtsd and of a Prometheus TSDB with the same samples, the answers are the same.
func TestQueryable_AnswersAsPrometheusTSDB(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ours := newDatabase(t, stores[rapid.SampledFrom([]string{"memory", "pebble"}).Draw(rt, "store")](t))
		defer ours.Close()
		theirs := teststorage.New(t, func(o *tsdb.Options) {
			// One head block, so that it takes what is long ago.
			o.MinBlockDuration, o.MaxBlockDuration, o.OutOfOrderTimeWindow = 1000*day, 1000*day, 1000*day
			o.EnableSharding = true
			o.WALSegmentSize, o.StripeSize, o.EnableExemplarStorage = -1, 32, false // it is opened often
		})
		defer theirs.Close()
		compareWithTSDB(t, rt, ours, theirs)
	})
}

func compareWithTSDB(t *testing.T, rt *rapid.T, ours *database, theirs *teststorage.TestStorage) {
	const start = 20_000 * day
	const end = start + 60*day
	genTime := rapid.OneOf(rapid.Int64Range(start, start+4*mapping.HourMs), rapid.Int64Range(start, end),
		rapid.SampledFrom([]int64{start, start + 1, start + day - 1, start + day, end}))
	written := map[string]map[int64]bool{}
	for range rapid.IntRange(1, 15).Draw(rt, "writes") {
		ls := genLabels().Draw(rt, "series")
		taken := written[ls.String()]
		if taken == nil {
			taken = map[int64]bool{}
			written[ls.String()] = taken
		}
		var samples []sample
		for range rapid.IntRange(1, 8).Draw(rt, "samples") {
			if at := genTime.Draw(rt, "t"); !taken[at] { // of two samples at one time the TSDB keeps the first
				taken[at] = true
				samples = append(samples, sample{at, rapid.SampledFrom(values).Draw(rt, "v")})
			}
		}
		write(t, ours, ls, samples...)
		write(t, theirs, ls, samples...)
	}
	for range 8 {
		mint, maxt := genTime.Draw(rt, "mint"), genTime.Draw(rt, "maxt")
		if mint > maxt {
			mint, maxt = maxt, mint
		}
		ms := rapid.SliceOfN(genMatcher(), 1, 3).Draw(rt, "matchers")
		hints := genHints(genTime).Draw(rt, "hints")
		want := selected(t, theirs, mint, maxt, hints, ms)
		if got := selected(t, ours, mint, maxt, hints, ms); !slices.Equal(got, want) {
			rt.Fatalf("select %v from %d to %d, hints %+v:\n got %q\nwant %q", ms, mint, maxt, hints, got, want)
		}
		if got := selectedChunks(t, ours, mint, maxt, hints, ms); !slices.Equal(got, want) {
			rt.Fatalf("select chunks %v from %d to %d, hints %+v:\n got %q\nwant %q", ms, mint, maxt, hints, got, want)
		}
		compareLabels(t, rt, ours, theirs, start, end, ms)
		checkActiveLabels(t, rt, ours, theirs, mint, maxt, ms)
	}
}

func genHints(genTime *rapid.Generator[int64]) *rapid.Generator[*storage.SelectHints] {
	return rapid.Custom(func(t *rapid.T) *storage.SelectHints {
		switch rapid.IntRange(0, 2).Draw(t, "hints") {
		case 0:
			return nil
		case 1:
			return &storage.SelectHints{Start: math.MinInt64, End: math.MaxInt64, Func: "rate", Range: 1000, Step: 77,
				ShardCount: 3, ShardIndex: rapid.Uint64Range(0, 2).Draw(t, "shard")}
		}
		return &storage.SelectHints{Start: genTime.Draw(t, "start"), End: genTime.Draw(t, "end")}
	})
}

// selected is the answer to a Select, but for series without samples, of which the TSDB returns some.
func selected(
	t testing.TB, from storage.Queryable, mint, maxt int64, hints *storage.SelectHints, ms []*labels.Matcher,
) []string {
	if _, theirs := from.(*teststorage.TestStorage); theirs && hints != nil {
		// Where hints go beyond the querier's range, the TSDB goes along.
		narrow := *hints
		narrow.Start, narrow.End = max(mint, hints.Start), min(maxt, hints.End)
		if hints = &narrow; narrow.Start > narrow.End {
			return []string{}
		}
	}
	q, err := from.Querier(mint, maxt)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	return withSamples(texts(t, q.Select(t.Context(), true, hints, ms...)))
}

func withSamples(series []string) []string {
	return slices.DeleteFunc(series, func(s string) bool { return strings.HasSuffix(s, "}") })
}

// selectedChunks is the same from a ChunkQuerier.
func selectedChunks(
	t testing.TB, from storage.ChunkQueryable, mint, maxt int64, hints *storage.SelectHints, ms []*labels.Matcher,
) []string {
	q, err := from.ChunkQuerier(mint, maxt)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	set := q.Select(t.Context(), true, hints, ms...)
	out := []string{}
	var it chunks.Iterator
	for set.Next() {
		text, last := set.At().Labels().String(), int64(math.MinInt64)
		for it = set.At().Iterator(it); it.Next(); {
			c := it.At()
			if c.MinTime <= last || c.Chunk.NumSamples() > query.MaxChunkSamples {
				t.Fatalf("chunk of %d samples from %d after %d", c.Chunk.NumSamples(), c.MinTime, last)
			}
			text += rest(t, c.Chunk.Iterator(nil))
			last = c.MaxTime
		}
		out = append(out, text)
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// labelsOf asks for all label names, and for the values of each.
func labelsOf(t testing.TB, from storage.Queryable, mint, maxt int64, ms []*labels.Matcher) map[string][]string {
	q, err := from.Querier(mint, maxt)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	names, _, err := q.LabelNames(t.Context(), nil, ms...)
	if err != nil || !slices.IsSorted(names) {
		t.Fatalf("label names %q, %v", names, err)
	}
	out := map[string][]string{"": names}
	for _, name := range append(names, "none") {
		if out[name], _, err = q.LabelValues(t.Context(), name, nil, ms...); err != nil || !slices.IsSorted(out[name]) {
			t.Fatalf("values of label %q: %q, %v", name, out[name], err)
		}
		if len(out[name]) == 0 {
			delete(out, name)
		}
	}
	return out
}

func compareLabels(
	t *testing.T, rt *rapid.T, ours *database, theirs *teststorage.TestStorage, mint, maxt int64, ms []*labels.Matcher,
) {
	got, want := labelsOf(t, ours, mint, maxt, ms), labelsOf(t, theirs, mint, maxt, ms)
	if !maps.EqualFunc(got, want, slices.Equal) {
		rt.Fatalf("labels of %v:\n got %q\nwant %q", ms, got, want)
	}
	got, want = labelsOf(t, ours, mint, maxt, nil), labelsOf(t, theirs, mint, maxt, nil)
	if !maps.EqualFunc(got, want, slices.Equal) {
		rt.Fatalf("all labels:\n got %q\nwant %q", got, want)
	}
}

// checkActiveLabels checks the labels of a part of the time: those of series with samples in it are there, and none
// that no series has on its days. The TSDB is as exact as its blocks.
func checkActiveLabels(
	t *testing.T, rt *rapid.T, ours *database, theirs *teststorage.TestStorage, mint, maxt int64, ms []*labels.Matcher,
) {
	got := labelsOf(t, ours, mint, maxt, ms)[""]
	inside := namesOfSelected(t, theirs, mint, maxt, ms)
	days := namesOfSelected(t, theirs, mint/day*day, (maxt/day+1)*day-1, ms)
	for _, name := range inside {
		if !slices.Contains(got, name) {
			rt.Fatalf("label names of %v from %d to %d: got %q, not %q", ms, mint, maxt, got, name)
		}
	}
	for _, name := range got {
		if !slices.Contains(days, name) {
			rt.Fatalf("label names of %v from %d to %d: got %q, which no series of the days has", ms, mint, maxt, name)
		}
	}
}

func namesOfSelected(t testing.TB, from storage.Queryable, mint, maxt int64, ms []*labels.Matcher) (names []string) {
	q, err := from.Querier(mint, maxt)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for set := q.Select(t.Context(), false, nil, ms...); set.Next(); {
		if set.At().Iterator(nil).Next() != chunkenc.ValNone {
			set.At().Labels().Range(func(l labels.Label) { names = append(names, l.Name) })
		}
	}
	return names
}

// An iterator goes through its chunks as an iterator over a list of the samples does.
func TestIterator_NextAndSeekAsOverAList(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	const n = 3*query.MaxChunkSamples + 7
	list := chunks.SampleSlice(chunks.GenerateSamples(0, n))
	var samples []sample
	for _, s := range list {
		samples = append(samples, sample{s.T(), s.F()})
	}
	write(t, db, labels.FromStrings("__name__", "m"), samples...)
	q, err := db.Querier(0, time.Hour.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	set := q.Select(t.Context(), false, nil, equal("__name__", "m"))
	if !set.Next() {
		t.Fatal(set.Err())
	}
	series := set.At()
	var used chunkenc.Iterator
	rapid.Check(t, func(rt *rapid.T) {
		used = series.Iterator(used)
		got, want := used, storage.NewListSeriesIterator(list)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			var gotKind, wantKind chunkenc.ValueType
			if rapid.Bool().Draw(rt, "seek") {
				to := rapid.Int64Range(-5, n+5).Draw(rt, "to")
				gotKind, wantKind = got.Seek(to), want.Seek(to)
			} else {
				gotKind, wantKind = got.Next(), want.Next()
			}
			if gotKind != wantKind {
				rt.Fatalf("got a sample of type %v, want %v", gotKind, wantKind)
			}
			if wantKind == chunkenc.ValNone {
				break // what a list says after its end is not defined
			}
			gotT, gotV := got.At()
			if wantT, wantV := want.At(); gotT != wantT || gotV != wantV || got.AtT() != wantT {
				rt.Fatalf("got %v at %d (%d), want %v at %d", gotV, gotT, got.AtT(), wantV, wantT)
			}
		}
		if err := got.Err(); err != nil {
			rt.Fatal(err)
		}
	})
	it := series.Iterator(nil)
	if it.Seek(math.MaxInt64) != chunkenc.ValNone || it.Seek(0) != chunkenc.ValNone || it.Next() != chunkenc.ValNone {
		t.Error("an iterator that was at its end goes on")
	}
}
