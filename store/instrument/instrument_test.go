package instrument_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/instrument"
	"github.com/promtsd/promtsd/store/storetest"
)

func TestStore(t *testing.T) { storetest.Run(t, open) }
func TestModel(t *testing.T) { storetest.Model(t, open) }

func open(t testing.TB) store.Store {
	return wrap(t, storetest.NewMem(), prometheus.NewPedanticRegistry())
}

func wrap(t testing.TB, inner store.Store, r prometheus.Registerer) store.Store {
	t.Helper()
	s, err := instrument.New(inner, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// only hides what a store can do besides the contract.
type only struct{ store.Store }

func TestNew_DeletesRangesIfTheStoreDoes(t *testing.T) {
	inner := storetest.NewMem()
	for want, s := range map[bool]store.Store{true: inner, false: only{inner}} {
		if _, is := s.(store.RangeDeleter); is != want {
			t.Fatalf("the store itself deletes ranges: %t", is)
		}
		if _, is := wrap(t, s, prometheus.NewRegistry()).(store.RangeDeleter); is != want {
			t.Errorf("deletes ranges: %t, want %t", is, want)
		}
	}
}

func TestMetrics_CountWhatWasAskedAndGoWithTheStore(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	s := wrap(t, storetest.NewMem(), r)
	if err := s.CreateTable(t.Context(), store.Table{Name: "data", Families: []string{"f"}}); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for _, row := range []string{"a", "b", "c"} {
		b.Put("data", []byte(row), "f", []byte("q1"), 1, []byte("v"))
		b.Put("data", []byte(row), "f", []byte("q2"), 1, []byte("v"))
	}
	if err := s.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	filter := store.RowFilter{Match: func(row []byte) bool { return string(row) != "b" }}
	if _, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: "data", Filter: filter})); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Collect(s.Get(t.Context(), store.Get{Table: "data", Rows: [][]byte{[]byte("a")}})); err != nil {
		t.Fatal(err)
	}
	for row, err := range s.Scan(t.Context(), store.Scan{Table: "data"}) { // and its caller leaves
		if err != nil || string(row.Key) != "a" {
			t.Fatal(row, err)
		}
		break
	}
	if err := s.Apply(t.Context(), new(store.Batch)); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: "none"})); !errors.Is(err, store.ErrNoTable) {
		t.Fatalf("scan of no table: %v", err)
	}
	want := `
# HELP promtsd_store_cells_read_total Cells that gets and scans returned.
# TYPE promtsd_store_cells_read_total counter
promtsd_store_cells_read_total 8
# HELP promtsd_store_cells_written_total Mutations that batches applied.
# TYPE promtsd_store_cells_written_total counter
promtsd_store_cells_written_total 6
# HELP promtsd_store_operation_errors_total Calls of the store that ended in an error, by verb.
# TYPE promtsd_store_operation_errors_total counter
promtsd_store_operation_errors_total{verb="apply"} 0
promtsd_store_operation_errors_total{verb="check_and_put"} 0
promtsd_store_operation_errors_total{verb="create_table"} 0
promtsd_store_operation_errors_total{verb="delete_range"} 0
promtsd_store_operation_errors_total{verb="get"} 0
promtsd_store_operation_errors_total{verb="increment"} 0
promtsd_store_operation_errors_total{verb="scan"} 1
promtsd_store_operation_errors_total{verb="tables"} 0
# HELP promtsd_store_rows_read_total Rows that gets and scans returned.
# TYPE promtsd_store_rows_read_total counter
promtsd_store_rows_read_total 4
# HELP promtsd_store_rows_rejected_total Rows that the filter of a scan rejected in this process.
# TYPE promtsd_store_rows_rejected_total counter
promtsd_store_rows_rejected_total 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "promtsd_store_cells_read_total",
		"promtsd_store_cells_written_total", "promtsd_store_operation_errors_total", "promtsd_store_rows_read_total",
		"promtsd_store_rows_rejected_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "promtsd_store_operation_duration_seconds"); n != 8 || err != nil {
		t.Errorf("times of %d verbs, %v", n, err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if _, err := instrument.New(storetest.NewMem(), r); err == nil {
		t.Error("a second store registered the same metrics")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(r); n != 0 || err != nil {
		t.Errorf("%d metrics after Close, %v", n, err)
	}
}
