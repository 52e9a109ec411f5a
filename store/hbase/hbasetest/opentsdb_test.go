package hbasetest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

func TestOpenTSDB_AnswersWhatItStored(t *testing.T) {
	cluster := hbasetest.Join(t)
	cluster.CreateTables(
		hbasetest.Table{Name: "salted", Families: []string{"t"}, Splits: [][]byte{{1}, {2}, {3}}},
		hbasetest.Table{Name: "salted-uid", Families: []string{"id", "name"}},
	)
	tsd := hbasetest.OpenTSDB(t, cluster, hbasetest.TSDConfig{
		DataTable: "salted", UIDTable: "salted-uid", SaltWidth: 1, SaltBuckets: 4, MetricWidth: 4,
		Lines: []string{"tsd.storage.enable_compaction=false"}, // A query shall not write under Fsck's eyes.
	})
	tags := map[string]string{"host": "a"}
	tsd.Put(
		hbasetest.Point{Metric: "cpu", Timestamp: 1_700_000_000_250, Value: "1.5", Tags: tags},
		hbasetest.Point{Metric: "cpu", Timestamp: 1_700_000_001_000, Value: "2", Tags: tags},
	)
	if got := tsd.Telnet("put cpu 1700000002 3 host=a", "put cpu oops"); !strings.Contains(got, "put: ") {
		t.Errorf("a bad line by telnet: got %q, want an error of put", got)
	}
	tsd.Stop() // It writes what came by telnet.
	tsd.Restart()

	series := tsd.Query(hbasetest.Query{
		Start: 1_700_000_000, End: 1_700_000_010, MsResolution: true, ShowTSUIDs: true,
		Queries: []hbasetest.SubQuery{{Metric: "cpu", Aggregator: "none", Tags: tags}},
	})
	got, err := json.Marshal(series)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"metric":"cpu","tags":{"host":"a"},"tsuids":["00000001000001000001"],` +
		`"dps":{"1700000000250":1.5,"1700000001000":2,"1700000002000":3}}]`
	if string(got) != want {
		t.Errorf("query: got\n%s, want\n%s", got, want)
	}
	// Salt, metric, base time, one tag.
	if row := cluster.Scan("salted")[0].Row; len(row) != 1+4+4+(3+3) {
		t.Errorf("a row of the data table: got %x, want one of 15 bytes", row)
	}

	if out, err := tsd.Tool("UidManager", "assign", "metrics", "mem"); err != nil || !strings.Contains(out, "mem") {
		t.Errorf("UidManager assign: got %q, %v, want a line about mem", out, err)
	}
	if out, err := tsd.Tool("Fsck", "--full-scan", "--threads=1"); err != nil ||
		!strings.Contains(out, "Total Errors: 0\n") {
		t.Errorf("Fsck of a good table: got %q, %v", out, err)
	}
	if out, err := tsd.Tool("Fsck", "--no-such-option"); err == nil {
		t.Errorf("a tool refuses its arguments: got %q and no error", out)
	}
}
