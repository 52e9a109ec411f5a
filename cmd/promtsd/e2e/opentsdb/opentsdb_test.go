// Package opentsdb_test runs a real OpenTSDB and promtsd on the same tables: each answers what the other wrote.
package opentsdb_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// sharedSchemas are the schemas in which promtsd and OpenTSDB meet, as both are told of them.
var sharedSchemas = []struct {
	name  string
	flags []string
	tsd   hbasetest.TSDConfig
}{
	{"plain", nil, hbasetest.TSDConfig{}},
	{"salted", []string{"--salt.width=1", "--salt.buckets=5"}, hbasetest.TSDConfig{SaltWidth: 1, SaltBuckets: 5}},
	{
		"uid4",
		[]string{"--uid.width.metric=4", "--uid.width.tagk=4", "--uid.width.tagv=4"},
		hbasetest.TSDConfig{MetricWidth: 4, TagkWidth: 4, TagvWidth: 4},
	},
}

// openTSDB starts OpenTSDB on the tables.
func openTSDB(t *testing.T, h promtest.Tables, cfg hbasetest.TSDConfig, lines ...string) *hbasetest.TSD {
	t.Helper()
	cfg.DataTable, cfg.UIDTable, cfg.MetaTable = h.DataTable(), h.UIDTable(), h.MetaTable()
	cfg.Lines = lines
	return hbasetest.OpenTSDB(t, h.Cluster, cfg)
}

// history is a time of which OpenTSDB compacts rows, at the beginning of an hour.
func history() int64 {
	return time.Now().Add(-30 * time.Hour).Truncate(time.Hour).UnixMilli()
}

// answerOf asks OpenTSDB for all series of metrics, as they are. The pair that stands for no tags is left out.
func answerOf(t *testing.T, tsd *hbasetest.TSD, metrics ...string) []remotetest.ReadSeries {
	t.Helper()
	query := hbasetest.Query{Start: 1, End: time.Now().UnixMilli(), MsResolution: true}
	for _, metric := range metrics {
		query.Queries = append(query.Queries, hbasetest.SubQuery{Metric: metric, Aggregator: "none"})
	}
	var answer []remotetest.ReadSeries
	for _, s := range tsd.Query(query) {
		builder := labels.NewBuilder(labels.EmptyLabels()).Set("__name__", s.Metric)
		for name, value := range s.Tags {
			if name != "no_tagsÿ" {
				builder.Set(name, value)
			}
		}
		series := remotetest.ReadSeries{Labels: builder.Labels()}
		for at, number := range s.DPS {
			ms, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				t.Fatalf("OpenTSDB's answer has the time %q: %v", at, err)
			}
			v, err := strconv.ParseFloat(number.String(), 64)
			if err != nil {
				t.Fatalf("OpenTSDB's answer has the value %q: %v", number, err)
			}
			series.Samples = append(series.Samples, request.Sample{T: ms, V: v})
		}
		slices.SortFunc(series.Samples, func(a, b request.Sample) int { return int(a.T - b.T) })
		answer = append(answer, series)
	}
	return answer
}

// assertFsck has OpenTSDB's own checker look at all of the data table, which holds so many samples.
func assertFsck(t *testing.T, tsd *hbasetest.TSD, samples int) {
	t.Helper()
	out, err := tsd.Tool("Fsck", "--full-scan", "--threads=1")
	for _, want := range []string{"Total Errors: 0\n", fmt.Sprintf("Valid Datapoints: %d\n", samples)} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("Fsck: want %q, got %v\n%s", want, err, out)
		}
	}
}

// finiteValues are numbers of each form in which promtsd stores them.
var finiteValues = []float64{
	0, 1, -1, 127, 128, -129, math.MaxInt16, math.MinInt16 - 1, math.MaxInt32, math.MinInt32 - 1,
	1<<53 - 1, -(1 << 53), 1 << 62,
	0.5, -1.5, 0.1, math.Pi, math.Copysign(0, -1), 1e-300, math.SmallestNonzeroFloat64, math.MaxFloat32, -math.MaxFloat64,
}

// promtsdSeries are series as Prometheus has them: with no labels and with many, of integers, of floats and of both,
// over many hours and at both ends of an hour.
func promtsdSeries(start int64) []remotetest.Series {
	many := []prompb.Label{{Name: "__name__", Value: "job:requests:rate5m"}}
	for i := range 12 {
		many = append(many, prompb.Label{Name: fmt.Sprintf("label_%02d", i), Value: fmt.Sprintf("/path?n=%d&x=y z", i)})
	}
	offsets := []int64{0, 1, 999, 1000, 80_500, 95_000, 1_800_000, mapping.HourMs - 1}
	var all []remotetest.Series
	for which, ls := range [][]prompb.Label{
		{{Name: "__name__", Value: "no_labels"}},
		{{Name: "__name__", Value: "numbers"}, {Name: "kind", Value: "all"}},
		{{Name: "__name__", Value: "numbers"}, {Name: "instance", Value: "a:9100"}, {Name: "kind", Value: "integer"}},
		{{Name: "__name__", Value: "numbers"}, {Name: "instance", Value: "b:9100"}, {Name: "kind", Value: "float"}},
		many,
	} {
		s := remotetest.Series{Labels: ls}
		for n := range 24 * len(offsets) {
			v := finiteValues[(n*7+which)%len(finiteValues)]
			switch which {
			case 2:
				v = float64((n - 90) * n * n)
			case 3:
				v = float64(n) / 3
			}
			s.Samples = append(s.Samples, request.Sample{
				T: start + int64(n/len(offsets))*mapping.HourMs + offsets[n%len(offsets)], V: v,
			})
		}
		all = append(all, s)
	}
	return all
}

// TestOpenTSDB_AnswersWhatPromtsdWrote has a real OpenTSDB beside promtsd on tables that promtsd made.
func TestOpenTSDB_AnswersWhatPromtsdWrote(t *testing.T) {
	for _, schema := range sharedSchemas {
		t.Run(schema.name, func(t *testing.T) {
			h := promtest.NewTables(t, "beside_"+schema.name)
			h.Init(t, schema.flags...)
			promtsd := h.Serve(t)
			// Compaction writes when somebody reads. Fsck shall see what promtsd wrote.
			tsd := openTSDB(t, h, schema.tsd, "tsd.storage.enable_compaction=false")

			want := remotetest.Model{}
			series := promtsdSeries(history())
			for turn := range 2 { // by either message, and of each series some
				var half []remotetest.Series
				for _, s := range series {
					middle := len(s.Samples) / 2
					half = append(half, remotetest.Series{Labels: s.Labels, Samples: [][]request.Sample{s.Samples[:middle],
						s.Samples[middle:]}[turn]})
				}
				if err := remotetest.WriteInTurn(t.Context(), promtsd.URL(), turn, half); err != nil {
					t.Fatal(err)
				}
				want.Write(half)
			}
			promtsd.Flush()
			got := answerOf(t, tsd, "no_labels", "numbers", "job:requests:rate5m")
			remotetest.AssertSameSeries(t, "OpenTSDB's answer", got, want.Read(0, mapping.MaxTime, nil))
			remotetest.AssertReads(t, promtsd.URL(), ".+", want)

			metrics := raceForNames(t, h, promtsd, tsd, want)
			promtsd.Flush()
			got = answerOf(t, tsd, metrics...)
			matcher := labels.MustNewMatcher(labels.MatchRegexp, "__name__", "race_.*")
			remotetest.AssertSameSeries(t, "OpenTSDB's answer", got, want.Read(0, mapping.MaxTime, []*labels.Matcher{matcher}))

			// What OpenTSDB wrote is not in promtsd's index, and nobody writes any more.
			h.Command(t, "index", "build")
			remotetest.AssertReads(t, promtsd.URL(), ".+", want)
			tsd.Stop()
			assertFsck(t, tsd, remotetest.SamplesIn(want.Read(0, mapping.MaxTime, nil)))
		})
	}
}

// raceForNames has promtsd and OpenTSDB meet the same names at once, checks that each has one UID, and returns the
// metrics. Both write to each series, at times of their own, which are added to want.
func raceForNames(
	t *testing.T, h promtest.Tables, promtsd *promtest.Process, tsd *hbasetest.TSD, want remotetest.Model,
) (metrics []string) {
	t.Helper()
	const rounds, names = 6, 8
	start := history()
	before := h.AssignedUIDs(t)
	expected := maps.Clone(before)
	for round := range rounds {
		var ours, theirs []remotetest.Series
		var points []hbasetest.Point
		for n := range names {
			suffix := fmt.Sprintf("%d_%d", round, n)
			metric, tagk, tagv := "race_"+suffix, "tagk_"+suffix, "tagv_"+suffix
			metrics = append(metrics, metric)
			expected["metrics "+metric], expected["tagk "+tagk], expected["tagv "+tagv] = "", "", ""
			ls := []prompb.Label{{Name: "__name__", Value: metric}, {Name: tagk, Value: tagv}}
			at := start + int64(n)*1000
			ours = append(ours, remotetest.Series{Labels: ls, Samples: []request.Sample{{T: at, V: float64(n)}}})
			theirs = append(theirs, remotetest.Series{Labels: ls, Samples: []request.Sample{{T: at + 500, V: float64(-n)}}})
			points = append(points, hbasetest.Point{
				Metric: metric, Timestamp: at + 500, Value: json.Number(strconv.Itoa(-n)), Tags: map[string]string{tagk: tagv},
			})
		}
		want.Write(ours)
		want.Write(theirs)
		var g errgroup.Group
		g.Go(func() error { return remotetest.WriteInTurn(t.Context(), promtsd.URL(), round, ours) })
		g.Go(func() error { return tsd.Post("/api/put?sync&details", points, nil) })
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	after := h.AssignedUIDs(t)
	for name := range expected {
		if uid, there := before[name]; after[name] == "" || there && uid != after[name] {
			t.Errorf("%q has the UID %x, and had %x before", name, after[name], uid)
		}
	}
	if len(after) != len(expected) {
		t.Errorf("%d names have UIDs, want %d", len(after), len(expected))
	}
	return metrics
}

// theirs is what a test has OpenTSDB write.
type theirs struct {
	points []hbasetest.Point // by HTTP
	lines  []string          // by telnet
	want   remotetest.Model
}

// add writes a point at a time in milliseconds. Whole seconds are sent as seconds if that is asked for.
func (w *theirs) add(metric string, tags map[string]string, at int64, seconds, telnet bool, value string) {
	var s remotetest.Series
	s.Labels = []prompb.Label{{Name: "__name__", Value: metric}}
	text := ""
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		s.Labels = append(s.Labels, prompb.Label{Name: k, Value: tags[k]})
		text += " " + k + "=" + tags[k]
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		panic(err)
	}
	s.Samples = []request.Sample{{T: at, V: v}}
	w.want.Write([]remotetest.Series{s})
	if seconds {
		at /= 1000
	}
	if telnet {
		w.lines = append(w.lines, fmt.Sprintf("put %s %d %s%s", metric, at, value, text))
	} else {
		w.points = append(w.points, hbasetest.Point{Metric: metric, Timestamp: at, Value: json.Number(value), Tags: tags})
	}
}

// fill adds points to some series at the given seconds of some hours: integers and floats, in seconds and in between,
// by HTTP and by telnet.
func (w *theirs) fill(metric string, start int64, hours int, seconds ...int64) {
	values := []string{"0", "-1", "300", "-70000", "5000000000", "1.5", "0.1", "-2.25", "1e-9", "9007199254740992"}
	n := 0
	for series := range 3 {
		tags := map[string]string{"host": fmt.Sprintf("web%02d", series), "dc": "ams"}
		for hour := range hours {
			for _, second := range seconds {
				at := start + int64(hour)*mapping.HourMs + second*1000
				inBetween := n%3 == 1
				if inBetween {
					at += 250
				}
				w.add(metric, tags, at, !inBetween, n%2 == 1, values[n%len(values)])
				n++
			}
		}
	}
}

// send has OpenTSDB write what was added since the last time, and waits until it answers all of it.
func (w *theirs) send(t *testing.T, tsd *hbasetest.TSD, metrics ...string) {
	t.Helper()
	tsd.Put(w.points...)
	if answer := tsd.Telnet(w.lines...); answer != "" {
		t.Fatalf("OpenTSDB answered by telnet: %s", answer)
	}
	w.points, w.lines = nil, nil
	wanted := w.want.Read(0, mapping.MaxTime, nil)
	var got []remotetest.ReadSeries
	promtest.Until(t, "OpenTSDB has stored what came by telnet", func(context.Context) error {
		got = answerOf(t, tsd, metrics...)
		if g, w := remotetest.SamplesIn(got), remotetest.SamplesIn(wanted); g != w {
			return fmt.Errorf("it answers %d points of %d", g, w)
		}
		return nil
	})
	remotetest.AssertSameSeries(t, "OpenTSDB's answer about its own", got, wanted)
}

// cellsOfRows counts the cells of each row of the data table.
func cellsOfRows(h promtest.Tables) map[string]int {
	rows := map[string]int{}
	for _, c := range h.Cluster.Scan(h.DataTable()) {
		rows[string(c.Row)]++
	}
	return rows
}

func awaitCompacted(t *testing.T, h promtest.Tables) {
	t.Helper()
	promtest.Until(t, "OpenTSDB has compacted all rows", func(context.Context) error {
		rows := cellsOfRows(h)
		if cells := slices.Max(slices.Collect(maps.Values(rows))); cells > 1 {
			return fmt.Errorf("of %d rows one has %d cells", len(rows), cells)
		}
		return nil
	})
}

// rowForms lists which forms of cells the rows of the data table have.
func rowForms(h promtest.Tables) string {
	rows := map[string]map[string]bool{}
	for _, c := range h.Cluster.Scan(h.DataTable()) {
		form := "compacted"
		switch q := c.Qualifier; {
		case len(q) == 3 && q[0] == 5:
			form = "appended"
		case len(q) == 2 || len(q) == 4 && q[0]&0xf0 == 0xf0:
			form = "single"
		}
		if rows[string(c.Row)] == nil {
			rows[string(c.Row)] = map[string]bool{}
		}
		rows[string(c.Row)][form] = true
	}
	found := map[string]bool{}
	for _, forms := range rows {
		found[strings.Join(slices.Sorted(maps.Keys(forms)), "+")] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

// TestOpenTSDB_PromtsdAnswersWhatItWrote has promtsd adopt tables that OpenTSDB made its way: points alone in their
// cells, compacted rows, appended ones, and rows that are both.
func TestOpenTSDB_PromtsdAnswersWhatItWrote(t *testing.T) {
	for _, schema := range sharedSchemas {
		t.Run(schema.name, func(t *testing.T) {
			h := promtest.NewTables(t, "theirs_"+schema.name)
			h.Cluster.CreateTables(
				hbasetest.Table{Name: h.DataTable(), Families: []string{"t"}},
				hbasetest.Table{Name: h.UIDTable(), Families: []string{"id", "name"}},
				hbasetest.Table{Name: h.MetaTable(), Families: []string{"name"}},
			)
			start := history()
			w := theirs{want: remotetest.Model{}}

			compacting := openTSDB(t, h, schema.tsd)
			w.fill("compacted", start, 4, 0, 1, 7, 60, 1800, 3599)
			w.send(t, compacting, "compacted")
			awaitCompacted(t, h)
			compacting.Kill()

			appending := openTSDB(t, h, schema.tsd, "tsd.storage.enable_appends=true", "tsd.storage.enable_compaction=false")
			w.fill("appended", start, 3, 0, 2, 9, 61, 1801, 3598)
			w.fill("compacted", start+mapping.HourMs, 1, 3, 12, 300) // into rows that are compacted
			w.send(t, appending, "compacted", "appended")
			appending.Kill()

			putting := openTSDB(t, h, schema.tsd, "tsd.storage.enable_compaction=false")
			w.fill("put", start, 3, 0, 3, 8, 59, 1802, 3597)
			w.fill("compacted", start+2*mapping.HourMs, 1, 4, 13, 301)
			w.send(t, putting, "compacted", "appended", "put")
			putting.Kill()

			if got, want := rowForms(h), "appended appended+compacted compacted compacted+single single"; got != want {
				t.Errorf("rows of the forms %q, want %q", got, want)
			}
			said := h.Init(t, schema.flags...)
			if want := h.InitSaid("adopted", "adopted", "adopted", "created"); said != want {
				t.Errorf("init said\n%s, want\n%s", said, want)
			}
			byRowKeys := h.Serve(t)
			if !strings.Contains(byRowKeys.Log(), "index=partial") {
				t.Errorf("promtsd does not say that the index is partial")
			}
			remotetest.AssertReads(t, byRowKeys.URL(), ".+", w.want)
			remotetest.AssertReads(t, byRowKeys.URL(), "compacted|nothing", w.want)
			byRowKeys.Stop()

			h.Command(t, "index", "build")
			byIndex := h.Serve(t)
			if !strings.Contains(byIndex.Log(), "index=complete") {
				t.Errorf("promtsd does not say that the index is complete")
			}
			remotetest.AssertReads(t, byIndex.URL(), ".+", w.want)
			remotetest.AssertReads(t, byIndex.URL(), "compacted|nothing", w.want)
		})
	}
}
