package ingest_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/cellio"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

const (
	day = 24 * 3600_000
	now = int64(1795253864620) // 37 minutes and some past an hour of 2026-11-21
)

// database is a store with an Appender on it, whose clock stands unless it is moved.
type database struct {
	*ingest.Appender
	config   ingest.Config
	store    store.Store
	settings catalog.Settings
	clock    *atomic.Int64
}

var limits = ingest.Limits{Labels: 70, LabelName: 40, LabelValue: 50, Future: 10 * time.Minute}

// open puts a new Appender, which knows nothing yet, on a store.
func open(t testing.TB, st store.Store, asked map[string]string, change func(*ingest.Config)) *database {
	t.Helper()
	settings, _, err := catalog.Init(t.Context(), st, "promtsd", asked)
	if err != nil {
		t.Fatal(err)
	}
	db := &database{store: st, settings: settings, clock: new(atomic.Int64)}
	db.clock.Store(now)
	uids := storetest.Must(uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
	}))
	t.Cleanup(uids.Close)
	c := ingest.Config{
		Store: st, Settings: settings, UIDs: uids, Limits: limits, CacheSize: 10_000,
		Now: func() time.Time { return time.UnixMilli(db.clock.Load()) },
	}
	if change != nil {
		change(&c)
	}
	db.config = c
	db.Appender = storetest.Must(ingest.New(c))
	return db
}

// raw are label bytes of names and values in turn.
func raw(pairs ...string) []byte {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = request.AppendLabel(b, pairs[i], pairs[i+1])
	}
	return b
}

func sample(t int64, v float64) request.Sample { return request.Sample{T: t, V: v} }

// add puts one series with its samples into a request.
func add(req *request.Write, labels []byte, samples ...request.Sample) {
	from := len(req.Samples)
	req.Samples = append(req.Samples, samples...)
	req.Series = append(req.Series, request.Series{Labels: labels, From: from, To: len(req.Samples)})
}

// append writes a request, all of which must be taken.
func (db *database) append(t testing.TB, labels []byte, samples ...request.Sample) {
	t.Helper()
	var req request.Write
	add(&req, labels, samples...)
	if got, err := db.Append(t.Context(), &req); err != nil || got.Written != len(samples) || got.Refused != nil {
		t.Fatalf("append %d samples: got %+v, %v", len(samples), got, err)
	}
}

// dump is the cells of some tables, a line each, without what is reserved of arrival times.
func dump(t testing.TB, st store.Store, tables ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := cellio.Dump(t.Context(), st, tables, &out, nil); err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(out.String())), func(line string) bool {
		return strings.Contains(line, `"row":"6168656164"`)
	})
	return strings.Join(lines, "")
}

// read decodes the data table: "row without salt and time, in hex" -> time -> value.
func read(t testing.TB, st store.Store, s mapping.Schema) map[string]map[int64]float64 {
	t.Helper()
	out := map[string]map[int64]float64{}
	var d mapping.RowDecoder
	for row, err := range st.Scan(t.Context(), store.Scan{Table: "tsdb"}) {
		if err != nil {
			t.Fatal(err)
		}
		tsuid, base, err := s.AppendRowTSUID(nil, row.Key)
		if err != nil {
			t.Fatal(err)
		}
		d.Reset(base)
		for _, c := range row.Cells {
			if err := d.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
				t.Fatal(err)
			}
		}
		var p mapping.Points
		d.AppendPoints(&p, 0, mapping.MaxTime)
		key := fmt.Sprintf("%x", tsuid)
		if out[key] == nil {
			out[key] = map[int64]float64{}
		}
		for i := range p.T {
			out[key][p.T[i]] = number(&p, i)
		}
	}
	return out
}

// number is a point's value, or a hundred more than the sum of a native histogram.
func number(p *mapping.Points, i int) float64 {
	if h := p.Histogram(i); h.Int != nil {
		return 100 + h.Int.Sum
	}
	return p.V[i]
}

// addHistogram adds a native histogram to the last series of a request.
func addHistogram(t testing.TB, req *request.Write, at int64, h *histogram.Histogram) {
	t.Helper()
	m := mapping.Histogram{Int: h}.Message(at)
	message, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	req.Histograms = append(req.Histograms, request.Histogram{Series: len(req.Series) - 1, Message: message})
}

func TestAppend_WritesTheCellsAsTheyAreDrawn(t *testing.T) {
	for _, c := range []struct{ name, salt string }{{"plain", ""}, {"salted", "08"}} {
		t.Run(c.name, func(t *testing.T) {
			var asked map[string]string
			if c.salt != "" {
				asked = map[string]string{catalog.SaltWidth: "1"}
			}
			db := open(t, storetest.NewMem(), asked, func(c *ingest.Config) { c.Limits.Future = time.Hour })
			db.append(t, raw("__name__", "up", "job", "a"),
				sample(now, 1), sample(now+1, 1.5), sample(now+60*60_000-2264620, math.Float64frombits(0x7ff0000000000002)))
			const data, at = `"family":"t","qualifier":`, `,"timestamp":1795253864620,"value":`
			want := strings.Join([]string{
				`{"table":"tsdb","row":"` + c.salt + `0000016b015d90000001000001",` + data + `"f8a38b00"` + at + `"01"}`,
				`{"table":"tsdb","row":"` + c.salt + `0000016b015d90000001000001",` + data + `"f8a38b4b"` + at + `"3fc00000"}`,
				`{"table":"tsdb","row":"` + c.salt + `0000016b016ba0000001000001",` + data + `"f000000f"` + at +
					`"7ff0000000000002"}`,
				`{"table":"tsdb-meta","row":"000001000001000001","family":"name","qualifier":"74735f637472"` +
					at + `"0000000000000001"}`,
				`{"table":"promtsd","row":"64512a000001000001000001","family":"p","qualifier":""` + at + `""}`, "",
			}, "\n")
			got := dump(t, db.store, "tsdb", "tsdb-meta", "promtsd")
			if i := strings.Index(got, `{"table":"promtsd","row":"`+fmt.Sprintf("%x", "settings")); i > 0 {
				got = got[:i]
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			names := dump(t, db.store, "tsdb-uid")
			for _, cell := range []string{
				`"row":"6a6f62","family":"id","qualifier":"7461676b",`, `"row":"61","family":"id","qualifier":"74616776",`,
				`"row":"7570","family":"id","qualifier":"6d657472696373",`,
			} {
				if !strings.Contains(names, cell) {
					t.Errorf("the UID table has no cell %s:\n%s", cell, names)
				}
			}
		})
	}
}

func TestAppend_AllLabelBytesOfASeriesAreOneSeries(t *testing.T) {
	forms := [][]byte{
		raw("__name__", "m", "a", "1", "b", "2"),
		raw("b", "2", "a", "1", "__name__", "m"),
		raw("__name__", "m", "a", "1", "empty", "", "b", "2"),
		raw("__name__", "m", "a", "1", "b", "2"),
	}
	for name, cacheSize := range map[string]int{"a large cache": 10_000, "hardly a cache": 1} {
		registry := prometheus.NewRegistry()
		db := open(t, storetest.NewMem(), nil, func(c *ingest.Config) { c.CacheSize, c.Registerer = cacheSize, registry })
		// One instant all over, in encodings whose qualifiers run against the order of writing; the clock stands.
		values := []float64{1.5, 1, 300, 2, 1e300, 3, 70000, 4}
		var req request.Write
		for i, v := range values {
			add(&req, forms[i%len(forms)], sample(now, v))
		}
		for round := range 3 {
			if got, err := db.Append(t.Context(), &req); err != nil || got.Written != len(values) {
				t.Fatalf("%s: got %+v, %v", name, got, err)
			}
			want := map[string]map[int64]float64{"000001000001000001000002000002": {now: 4}}
			if got := read(t, db.store, db.settings.Schema); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, round %d: the data table holds %v, want %v", name, round, got, want)
			}
		}
		for i, v := range values { // each in a request of its own
			db.append(t, forms[i%len(forms)], sample(now, v))
			if got := read(t, db.store, db.settings.Schema)["000001000001000001000002000002"][now]; got != v {
				t.Errorf("%s: %v was written last, got %v", name, v, got)
			}
		}
		if name == "a large cache" {
			const want = "# HELP promtsd_ingest_series_resolved_total Series that were not in the series cache and whose UIDs " +
				"were looked up or assigned.\n# TYPE promtsd_ingest_series_resolved_total counter\n" +
				"promtsd_ingest_series_resolved_total 1\n"
			err := testutil.GatherAndCompare(registry, strings.NewReader(want), "promtsd_ingest_series_resolved_total")
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAppend_TakesSeriesOfAnyNumberOfLabels(t *testing.T) {
	db := open(t, storetest.NewMem(), map[string]string{catalog.SaltWidth: "1"}, nil)
	var pairs []string
	for n := range 61 {
		db.append(t, raw(append([]string{"__name__", "m"}, pairs...)...), sample(now, float64(n)))
		pairs = append(pairs, fmt.Sprintf("label_%02d", n), fmt.Sprint(n))
	}
	got := read(t, db.store, db.settings.Schema)
	if len(got) != 61 {
		t.Errorf("the data table holds %d series, want 61", len(got))
	}
	for n := range 61 {
		tsuid := "000001" + "000001000001"
		for i := 1; i < n+1 && n > 0; i++ {
			if i == 1 {
				tsuid = "000001" // without the reserved tag, which has the first UIDs
			}
			tsuid += fmt.Sprintf("%06x%06x", i+1, i+1)
		}
		if v, ok := got[tsuid][now]; !ok || v != float64(n) {
			t.Errorf("%d labels: the series %s has %v, %v", n, tsuid, v, ok)
		}
	}
}

// indexRows are the rows of the index, meta rows first.
func TestAppend_ManyAtOnceMakeOneSeries(t *testing.T) {
	db, err := pebble.Open(pebble.Config{Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, st := range map[string]store.Store{"mem": storetest.NewMem(), "pebble": db} {
		for cache, size := range map[string]int{"a large cache": 10_000, "hardly a cache": 1} {
			t.Run(name+" "+cache, func(t *testing.T) {
				db := open(t, st, nil, func(c *ingest.Config) { c.CacheSize = size })
				const writers, series = 8, 20
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						for i := range series {
							var req request.Write
							add(&req, raw("__name__", "m", "a", fmt.Sprint(i%5), "b", fmt.Sprint(i)), sample(now+int64(w), 1))
							if got, err := db.Append(t.Context(), &req); err != nil || got.Written != 1 {
								t.Errorf("got %+v, %v", got, err)
							}
						}
					})
				}
				wg.Wait()
				got := read(t, st, db.settings.Schema)
				if len(got) != series {
					t.Errorf("%d writers of %d series made %d", writers, series, len(got))
				}
				for tsuid, samples := range got {
					if len(samples) != writers {
						t.Errorf("series %s has %d samples, want %d", tsuid, len(samples), writers)
					}
				}
				if rows := indexRows(t, st); len(rows) != 2*series {
					t.Errorf("the index has %d rows, want %d", len(rows), 2*series)
				}
				forward := strings.Count(dump(t, st, "tsdb-uid"), `"family":"id"`)
				if want := 3 + 1 + 2 + series; forward != want { // counters, metric, tagks, tagvs, of which 5 are in both
					t.Errorf("the UID table has %d forward cells and counters, want %d", forward, want)
				}
			})
		}
	}
}

// BenchmarkAppend writes 500 known series, 4 samples each.
func BenchmarkAppend(b *testing.B) {
	db := open(b, discard{storetest.NewMem()}, nil, nil)
	var req request.Write
	for i := range 500 {
		labels := raw("__name__", "http_requests_total", "code", "200", "handler", "/api/v1/query", "instance",
			fmt.Sprintf("10.0.0.%d:9090", i), "job", "prometheus", "method", "get")
		add(&req, labels, sample(now, float64(i)), sample(now+15000, 1.5), sample(now+30000, 1e6), sample(now+45000, 2))
	}
	b.ReportAllocs()
	for b.Loop() {
		db.clock.Add(1)
		if _, err := db.Append(b.Context(), &req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(req.Samples)*b.N)/b.Elapsed().Seconds(), "samples/s")
}
