package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/pebble/pebbletest"
)

// world draws requests and queries whose names, values and times meet.
type world struct {
	names, values *rapid.Generator[string]
	times         *rapid.Generator[int64]
	start         int64 // none is before
}

func drawWorld(t *rapid.T) world {
	text := rapid.OneOf(
		rapid.SampledFrom([]string{
			"a", "A", "job", "le", "no_tags", "no_metric", "no_tagsÿ", "\x00", "a\x00", "\n", "a\nb", "\t \r", "\u2028",
			"\ufeff", "\ufffd", "\U0010ffff", "😀", "é", "e\u0301", "ÿ", `"\`, "..", "/", "%41", "%", "_", "a b",
			"a.b-c/d_e",
			"ключ", ".*", "{}", strings.Repeat("x", 200), strings.Repeat("ü", 128),
		}),
		rapid.StringN(1, 12, -1),
	)
	names := rapid.SliceOfNDistinct(text, 1, 6, rapid.ID[string]).Draw(t, "names")
	values := rapid.SliceOfNDistinct(text, 1, 6, rapid.ID[string]).Draw(t, "values")
	origin := rapid.OneOf(
		rapid.SampledFrom([]int64{0, lastHour, 490_000}), rapid.Int64Range(0, lastHour),
	).Draw(t, "hour")
	// Beyond 40 days the index is read in another way. Much longer is not drawn: a query reads every hour of its range.
	apart := rapid.SampledFrom([]int64{0, 0, 1, 23, 24, 50 * 24})
	within := rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 999, 1000, mapping.HourMs - 1}), rapid.Int64Range(0, mapping.HourMs-1),
	)
	return world{
		names:  rapid.SampledFrom(names),
		values: rapid.SampledFrom(values),
		times: rapid.Custom(func(t *rapid.T) int64 {
			return min(origin+apart.Draw(t, "apart"), lastHour)*mapping.HourMs + within.Draw(t, "ms")
		}),
		start: origin * mapping.HourMs,
	}
}

const lastHour = mapping.MaxTime / mapping.HourMs

// request draws the series of a write request. A label with an empty value is sent now and then; in 1.0, labels need
// not be sorted.
func (w world) request(t *rapid.T) []remotetest.Series {
	bits := rapid.OneOf(rapid.SampledFrom([]uint64{
		0, 1 << 63, 1, 0x7ff0000000000002, 0x7ff8000000000001, 0x7ff0000000000000, 0xfff0000000000000, 0xffffffffffffffff,
		math.Float64bits(1), math.Float64bits(-129), math.Float64bits(1 << 53), math.Float64bits(0.1),
		math.Float64bits(float64(float32(0.1))), math.Float64bits(math.MaxFloat64), math.Float64bits(math.MinInt64),
	}), rapid.Uint64())
	one := rapid.Custom(func(t *rapid.T) remotetest.Series {
		set := map[string]string{"__name__": w.values.Draw(t, "metric")}
		for range rapid.IntRange(0, 4).Draw(t, "labels") {
			name := w.names.Draw(t, "name")
			if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
				set[name] = ""
			} else {
				set[name] = w.values.Draw(t, "value")
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "many") == 0 {
			for i := range 60 - (len(set) - 1) {
				set[fmt.Sprintf("label_%02d", i)] = w.values.Draw(t, "value")
			}
		}
		var s remotetest.Series
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(set))).Draw(t, "order") {
			s.Labels = append(s.Labels, prompb.Label{Name: name, Value: set[name]})
		}
		for range rapid.IntRange(1, 12).Draw(t, "samples") {
			s.Samples = append(s.Samples, request.Sample{
				T: w.times.Draw(t, "t"), V: math.Float64frombits(bits.Draw(t, "bits")),
			})
		}
		return s
	})
	return rapid.SliceOfN(one, 1, 5).Draw(t, "series")
}

// query draws a query, as a message and taken apart.
func (w world) query(t *rapid.T) (*prompb.Query, []*labels.Matcher) {
	q := &prompb.Query{StartTimestampMs: w.times.Draw(t, "start"), EndTimestampMs: w.times.Draw(t, "end")}
	if rapid.Bool().Draw(t, "all") {
		q.StartTimestampMs, q.EndTimestampMs = w.start-1, w.start+60*24*mapping.HourMs
	}
	name := rapid.OneOf(rapid.Just("__name__"), w.names, rapid.SampledFrom([]string{"label_07", "nowhere"}))
	var matchers []*labels.Matcher
	for range rapid.IntRange(0, 3).Draw(t, "matchers") {
		typ := rapid.SampledFrom([]labels.MatchType{
			labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
		}).Draw(t, "type")
		value := w.values.Draw(t, "value")
		if typ == labels.MatchRegexp || typ == labels.MatchNotRegexp {
			quoted, other := regexp.QuoteMeta(value), regexp.QuoteMeta(w.values.Draw(t, "other"))
			first := string([]rune(value)[:1])
			value = rapid.SampledFrom([]string{
				quoted, quoted + "|" + other, regexp.QuoteMeta(first) + ".*", ".*" + quoted, ".*", ".+", "", "(?i:" + quoted + ")",
				"[^a]*", "|" + quoted,
			}).Draw(t, "pattern")
		} else if rapid.IntRange(0, 3).Draw(t, "empty") == 0 {
			value = ""
		}
		m, err := labels.NewMatcher(typ, name.Draw(t, "name"), value)
		if err != nil {
			t.Fatal(err)
		}
		matchers = append(matchers, m)
		q.Matchers = append(q.Matchers, &prompb.LabelMatcher{
			Type: prompb.LabelMatcher_Type(typ), Name: m.Name, Value: m.Value, // the numbers are the same
		})
	}
	return q, matchers
}

// parts is promtsd without its program: all its parts on one store, behind HTTP.
type parts struct {
	*httptest.Server
	uids *uid.Registry
}

func (p *parts) Close() {
	p.Server.Close()
	p.uids.Close()
}

// assemble puts the parts together as serve does, over a store that outlives them.
func assemble(st store.Store, settings catalog.Settings, cacheSize int, now func() time.Time) (*parts, error) {
	discard := slog.New(slog.DiscardHandler)
	db := querytest.Over(st, settings, querytest.Options{
		Now: now, Ingest: func(c *ingest.Config) { c.CacheSize = cacheSize },
	})
	handler, err := adapter.New(adapter.Config{
		Appender: db.Appender, Querier: db.Querier,
		Gatherer: prometheus.NewRegistry(), Logger: discard,
	})
	if err != nil {
		return nil, err
	}
	handler.SetReady()
	return &parts{httptest.NewServer(handler), db.UIDs}, nil
}

// TestRoundTrip_BitsComeBack writes random series by both messages of remote write and reads them by both forms of
// remote read, with restarts in between. What is read must be, bit for bit, what was written last.
func TestRoundTrip_BitsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		st, err := pebble.Open(pebble.Config{Dir: "data", FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		settings, _, err := catalog.Init(ctx, st, "promtsd", rapid.SampledFrom([]map[string]string{
			nil,
			{catalog.NamesMode: "opentsdb"},
			{
				catalog.SaltWidth: "1", catalog.SaltBuckets: "3",
				catalog.MetricWidth: "2", catalog.TagkWidth: "1", catalog.TagvWidth: "8",
			},
		}).Draw(t, "settings"))
		if err != nil {
			t.Fatal(err)
		}
		clock := time.UnixMilli(1_800_000_000_000)
		start := func() *parts {
			cache := rapid.SampledFrom([]int{1, 1000}).Draw(t, "cache")
			p, err := assemble(st, settings, cache, func() time.Time { return clock })
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		server := start()
		defer func() { server.Close() }()

		w, want := drawWorld(t), remotetest.Model{}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				series := w.request(t)
				message := rapid.SampledFrom([]string{remotetest.MessageV1, remotetest.MessageV2}).Draw(t, "message")
				writeAll(t, server, message, series)
				want.Write(series)
			},
			"read": func(t *rapid.T) { readSame(t, server, w, want) },
			"tick": func(*rapid.T) { clock = clock.Add(time.Millisecond) },
			"restart": func(*rapid.T) {
				server.Close()
				clock = clock.Add(time.Minute) // cell timestamps given in a standing millisecond run ahead of the clock
				server = start()
			},
		})
		readSame(t, server, w, want)
	})
}

// TestRoundTrip_AllOfTime asks for more than all time of a series that has samples at both of its ends.
func TestRoundTrip_AllOfTime(t *testing.T) {
	st := pebbletest.Open(t, pebble.Config{})
	settings, _, err := catalog.Init(t.Context(), st, "promtsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	server, err := assemble(st, settings, 10, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	series := []remotetest.Series{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "ends"}},
		Samples: []request.Sample{{T: mapping.MaxTime, V: 2}, {T: 0, V: math.Copysign(0, -1)}},
	}}
	writeAll(t, server, remotetest.MessageV1, series)
	want := remotetest.Model{}
	want.Write(series)
	queries := []*prompb.Query{{StartTimestampMs: math.MinInt64, EndTimestampMs: math.MaxInt64}}
	for _, form := range remotetest.ResponseTypes {
		got, err := remotetest.Read(t.Context(), server.Client(), server.URL, form, queries)
		all := [][]remotetest.ReadSeries{want.Read(0, mapping.MaxTime, nil)}
		if g, w := fmt.Sprint(got), fmt.Sprint(all); err != nil || g != w {
			t.Errorf("in form %v:\ngot  %s, %v\nwant %s", form, g, err, w)
		}
	}
}

func writeAll(t rapid.TB, server *parts, message string, series []remotetest.Series) {
	res, err := remotetest.Write(context.Background(), server.Client(), server.URL, message, series)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusNoContent {
		t.Fatalf("write: got %s: %s", res.Status, text)
	}
	samples := 0
	for _, s := range series {
		samples += len(s.Samples)
	}
	said := res.Header.Get("X-Prometheus-Remote-Write-Samples-Written")
	if message == remotetest.MessageV2 && said != strconv.Itoa(samples) {
		t.Fatalf("write: %s samples are said to be written, want %d", said, samples)
	}
}

// readSame asks some queries in one request, in both forms, and compares the answers with the model's.
func readSame(t *rapid.T, server *parts, w world, want remotetest.Model) {
	var queries []*prompb.Query
	var answers [][]remotetest.ReadSeries
	for range rapid.IntRange(1, 3).Draw(t, "queries") {
		q, matchers := w.query(t)
		queries = append(queries, q)
		answers = append(answers, want.Read(q.StartTimestampMs, q.EndTimestampMs, matchers))
	}
	for _, form := range remotetest.ResponseTypes {
		got, err := remotetest.Read(context.Background(), server.Client(), server.URL, form, queries)
		if err != nil {
			t.Fatalf("read %v in form %v: %v", queries, form, err)
		}
		for i := range queries {
			if g, w := fmt.Sprint(got[i]), fmt.Sprint(answers[i]); g != w {
				t.Fatalf("query %v in form %v:\ngot  %s\nwant %s", queries[i], form, g, w)
			}
		}
	}
}
