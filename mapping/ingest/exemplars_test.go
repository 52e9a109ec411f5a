package ingest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// addExemplar puts an exemplar of the last series into a request.
func addExemplar(req *request.Write, t int64, v float64, labels ...string) {
	req.Exemplars = append(req.Exemplars, request.Exemplar{Series: len(req.Series) - 1, T: t, V: v,
		Labels: raw(labels...)})
}

func addMetadata(req *request.Write, family, help string) {
	req.Metadata = append(req.Metadata, request.Metadata{Family: []byte(family), Type: "gauge", Help: []byte(help)})
}

// exemplarsOf are the exemplars of a store as text, and the days of their series that the index has.
func exemplarsOf(t *testing.T, db *database) (texts, days []string) {
	t.Helper()
	rows := exemplars.NewRows(db.settings.Schema)
	for row, err := range db.store.Scan(t.Context(), store.Scan{Table: db.settings.Tables.System}) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Key[0] == 'd' {
			days = append(days, fmt.Sprintf("%x", row.Key[1:]))
		}
	}
	for row, err := range db.store.Scan(t.Context(), store.Scan{Table: db.settings.Tables.Exemplars()}) {
		if err != nil {
			t.Fatal(err)
		}
		tsuid, base, err := rows.AppendTSUID(nil, row.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range row.Cells {
			e, err := exemplars.Parse(base, c)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, fmt.Sprintf("%x %d %v %q", tsuid, e.T-now, e.V, e.Labels))
		}
	}
	return texts, days
}

func metadataOf(t *testing.T, db *database) (texts []string) {
	t.Helper()
	r := families.Reader{Store: db.store, Tables: db.settings.Tables}
	if err := r.Metadata(t.Context(), "", 0, func(name string, m metadata.Metadata) error {
		texts = append(texts, fmt.Sprintf("%s %s %s", name, m.Type, m.Help))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return texts
}

// modes are the two modes.
var modes = map[string]func(*ingest.Config){"write-through": nil, "buffered": buffered}

func start(t *testing.T, db *database) {
	t.Helper()
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAppend_StoresExemplarsAndMetadata(t *testing.T) {
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		t.Run(mode, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			db := open(t, storetest.NewMem(), map[string]string{catalog.SaltWidth: "1"}, func(c *ingest.Config) {
				if change := modes[mode]; change != nil {
					change(c)
				}
				c.Registerer = registry
			})
			start(t, db)
			var req request.Write
			add(&req, raw("__name__", "m", "s", "a"), sample(now, 1))
			addExemplar(&req, now, 0.5, "trace_id", "1")
			addExemplar(&req, now, 0.5, "trace_id", "1") // a repeat is the same cell
			addExemplar(&req, now, 0.5, "trace_id", "2")
			addExemplar(&req, now-3*day, 7) // of a day without samples
			addExemplar(&req, now+day, 1)
			addExemplar(&req, -1, 1)
			addExemplar(&req, now, 1, "trace_id", strings.Repeat("x", 121))
			add(&req, raw("s", "a", "s", "b"), sample(now, 1), sample(now+1, 1))
			addExemplar(&req, now, 1)
			add(&req, raw("__name__", "m", "s", "b")) // exemplars alone
			addExemplar(&req, now+1, 2, "b", "2", "a", "1", "c", "")
			addMetadata(&req, "m", "help")
			addMetadata(&req, "", "nothing")

			for range 2 { // a request may be sent again
				result, err := db.Append(t.Context(), &req)
				if err != nil {
					t.Fatal(err)
				}
				refused := map[request.Reason]int{
					request.ReasonTimestamp: 2, request.ReasonExemplarLabels: 1, request.ReasonSeriesRefused: 1,
				}
				if result.Written != 1 || result.Exemplars.Written != 5 || !maps.Equal(result.Exemplars.Refused, refused) {
					t.Errorf("got %+v, want 1 sample, 5 exemplars, and %v refused", result, refused)
				}
				if example := fmt.Sprint(result.Exemplars.Example); !strings.Contains(example, `series m{s="a"}`) {
					t.Errorf("got example %q", example)
				}
			}
			texts, days := exemplarsOf(t, db)
			const a, b = "000001000001000001", "000001000001000002"
			want := []string{
				a + ` -259200000 7 ""`,
				a + fmt.Sprintf(" 0 0.5 %q", raw("trace_id", "1")), a + fmt.Sprintf(" 0 0.5 %q", raw("trace_id", "2")),
				b + fmt.Sprintf(" 1 2 %q", raw("a", "1", "b", "2")),
			}
			if slices.Sort(texts); !slices.Equal(texts, sorted(want)) {
				t.Errorf("kept are\n%q, want\n%q", texts, sorted(want))
			}
			today := now / day
			wantDays := []string{fmt.Sprintf("%04x%s", today-3, a), fmt.Sprintf("%04x%s", today, a),
				fmt.Sprintf("%04x%s", today, b)}
			if !slices.Equal(days, wantDays) {
				t.Errorf("the index has %q, want %q", days, wantDays)
			}
			if got := metadataOf(t, db); !slices.Equal(got, []string{"m gauge help"}) {
				t.Errorf("metadata is %q", got)
			}
			const wantMetrics = `
# HELP promtsd_ingest_exemplars_total Exemplars stored, exact repeats included.
# TYPE promtsd_ingest_exemplars_total counter
promtsd_ingest_exemplars_total 10
# HELP promtsd_ingest_invalid_metadata_total Metadata of metric families that cannot be kept: no name, or too long.
# TYPE promtsd_ingest_invalid_metadata_total counter
promtsd_ingest_invalid_metadata_total 2
# HELP promtsd_ingest_metadata_total Metric families of which metadata was stored because it was new.
# TYPE promtsd_ingest_metadata_total counter
promtsd_ingest_metadata_total 1
# HELP promtsd_ingest_refused_exemplars_total Exemplars that were refused for good.
# TYPE promtsd_ingest_refused_exemplars_total counter
promtsd_ingest_refused_exemplars_total{reason="exemplar_labels"} 2
promtsd_ingest_refused_exemplars_total{reason="series_refused"} 2
promtsd_ingest_refused_exemplars_total{reason="timestamp"} 4
`
			if err := testutil.GatherAndCompare(registry, strings.NewReader(wantMetrics), "promtsd_ingest_exemplars_total",
				"promtsd_ingest_invalid_metadata_total", "promtsd_ingest_metadata_total",
				"promtsd_ingest_refused_exemplars_total"); err != nil {
				t.Error(err)
			}
			if err := db.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }

// Metadata alone needs no journal, and what is known no call of the store.
func TestAppend_MetadataThatIsKnownCostsNothing(t *testing.T) {
	st := &spy{Store: storetest.NewMem()}
	db := open(t, st, nil, buffered)
	start(t, db)
	st.seen = nil
	var req request.Write
	for _, help := range []string{"a", "a", "b", "b"} {
		req.Reset()
		addMetadata(&req, "m", help)
		if _, err := db.Append(t.Context(), &req); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"promtsd", "promtsd"}; !slices.Equal(st.seen, want) {
		t.Errorf("batches were of tables %q, want %q", st.seen, want)
	}
	if got := metadataOf(t, db); !slices.Equal(got, []string{"m gauge b"}) {
		t.Errorf("metadata is %q", got)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// What is acknowledged is there after a kill. A replay writes exemplars over themselves, and brings no old metadata
// back.
func TestReplay_OfExemplarsAndMetadata(t *testing.T) {
	st := storetest.NewMem()
	db := open(t, st, nil, buffered)
	start(t, db)
	var req request.Write
	add(&req, raw("__name__", "m", "s", "a"), sample(now, 1))
	addExemplar(&req, now, 0.5, "trace_id", "1")
	add(&req, raw("s", "a", "s", "b"), sample(now, 1))
	addExemplar(&req, now, 1) // which a replay must refuse as well
	addMetadata(&req, "m", "old")
	for range 2 {
		if _, err := db.Append(t.Context(), &req); err != nil {
			t.Fatal(err)
		}
		req.Metadata = req.Metadata[:0]
		addMetadata(&req, "m", "new")
	}
	before, _ := exemplarsOf(t, db)
	if len(before) != 1 {
		t.Fatalf("kept are %q, want one", before)
	}
	db.Abandon()

	// As if the end had come between the journal and the rows beside it.
	var lost store.Batch
	for row, err := range st.Scan(t.Context(), store.Scan{Table: "promtsd",
		Ranges: []store.Range{{Start: []byte("x"), Stop: []byte("y")}}}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range row.Cells {
			lost.Delete("promtsd", row.Key, c.Family, c.Qualifier, now)
		}
	}
	if err := st.Apply(t.Context(), &lost); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*ingest.Config){buffered, func(c *ingest.Config) { c.SingleProcess = true }} {
		db = open(t, st, nil, change)
		db.clock.Add(1000)
		start(t, db)
		if after, _ := exemplarsOf(t, db); !slices.Equal(after, before) {
			t.Errorf("after the replay %q are kept, want %q", after, before)
		}
		if got := metadataOf(t, db); !slices.Equal(got, []string{"m gauge new"}) {
			t.Errorf("metadata is %q", got)
		}
		db.Abandon()
	}
}

func BenchmarkAppend_Exemplars(b *testing.B) {
	db := open(b, discard{storetest.NewMem()}, nil, nil)
	var req request.Write
	for i := range 1000 {
		add(&req, raw("__name__", "m", "s", fmt.Sprint(i)))
		addExemplar(&req, now, float64(i), "trace_id", "4bf92f3577b34da6a3ce929d0e0e4736")
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := db.Append(b.Context(), &req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*1000), "ns/exemplar")
}
