package query_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// newHBaseBench is a bench on an HBase that is given time to compile what it runs.
func newHBaseBench(b *testing.B, asked map[string]string) *bench {
	b.Helper()
	cluster := hbasetest.Standalone(b, hbasetest.Config{JVM: []string{"-Xmx2g", "-XX:TieredStopAtLevel=4"}})
	f := newBenchOn(b, openHBase(b, cluster), asked)
	f.compact = func() { flushHBase(b, cluster, f.settings.Tables.Data) }
	f.used = func() time.Duration { return processorTime() + cluster.RegionServers()[0].CPU() }
	f.warmUp = 30 * time.Second
	return f
}

func openHBase(t testing.TB, cluster *hbasetest.Cluster) *hbase.Store {
	t.Helper()
	st, err := hbase.Open(hbase.Config{
		Client: client.Config{ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// flushHBase has HBase write a table into files, as it does with what is older than an hour or so.
func flushHBase(t testing.TB, cluster *hbasetest.Cluster, table string) {
	t.Helper()
	c, err := client.New(client.Config{ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.FlushTable(context.Background(), table); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkHBaseCosts measures what HBaseCosts says, in time of HBase's processors and ours.
//
//	go test ./query -run '^$' -bench HBaseCosts -benchtime 3s
func BenchmarkHBaseCosts(b *testing.B) { newHBaseBench(b, nil).costs(b) }

// daySeries is how many series writeDay writes.
const daySeries = 10_000

// writeDay writes a day of many series of one metric.
func (f *bench) writeDay(t testing.TB) {
	t.Helper()
	var all []labels.Labels
	for i := range daySeries {
		all = append(all, benchLabels("requests_total", i))
	}
	f.assign(t, all)
	for _, ls := range all {
		f.write(t, ls, benchDay, 24)
	}
	f.flush(t)
}

// HBase counts the rows that its regions met, whether they were sent or passed over.
func TestHBase_OneOfManySeriesTouchesItsOwnRows(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 240,000 rows, by code that other tests run")
	}
	const buckets = 4
	cluster := hbasetest.Standalone(t, hbasetest.Config{})
	f := newBenchOn(t, openHBase(t, cluster), map[string]string{"salt.width": "1", "salt.buckets": fmt.Sprint(buckets)})
	for i := range f.cell {
		f.cell[i].qualifier, f.cell[i].value = mapping.AppendCell(nil, nil, mapping.AppendPoint(nil, 0, float64(i)))
	}
	f.writeDay(t)
	q := f.querier(t, true, func(c *query.Config) { c.Costs = query.HBaseCosts() })
	name := matcher(labels.MatchEqual, "__name__", "requests_total")
	from := int64(benchDay) * 24 * mapping.HourMs
	for _, c := range []struct {
		name    string
		plan    string
		hours   int
		ms      []*labels.Matcher
		samples int
		least   int // rows touched
		most    int
	}{
		{"one series", "cost", 24, []*labels.Matcher{name, matcher(labels.MatchEqual, "instance", "host-01234:9100")},
			24, 24, 24 + buckets},
		{"one series, by scans", "scan", 24, []*labels.Matcher{name,
			matcher(labels.MatchEqual, "instance", "host-01234:9100")},
			24, 24, 2*24 + buckets},
		// That rows which a filter passes over are counted, too:
		{"a tenth, by scans", "scan", 1, []*labels.Matcher{name, matcher(labels.MatchEqual, "job", "job-3")},
			daySeries / 10, daySeries * 9 / 10, daySeries + buckets},
		{"all", "cost", 1, []*labels.Matcher{name}, daySeries, daySeries, daySeries + buckets},
	} {
		q.ForceMethod(c.plan)
		before := cluster.RowsRead(f.settings.Tables.Data)
		e, err := q.Explain(t.Context(), from, from+int64(c.hours)*mapping.HourMs-1, c.ms, true)
		if err != nil {
			t.Fatal(err)
		}
		touched := cluster.RowsRead(f.settings.Tables.Data) - before
		t.Logf("%s: %d rows touched, %d samples found", c.name, touched, e.Actual.Samples)
		if touched < c.least || touched > c.most || e.Actual.Samples != c.samples {
			t.Errorf("%s: %d rows touched, want %d to %d; %d samples, want %d: %+v",
				c.name, touched, c.least, c.most, e.Actual.Samples, c.samples, e)
		}
	}
}

// BenchmarkHBaseSelect shows that the plan that costs less is the faster one.
//
//	go test ./query -run '^$' -bench HBaseSelect -benchtime 20x
func BenchmarkHBaseSelect(b *testing.B) {
	f := newHBaseBench(b, map[string]string{"salt.width": "1", "salt.buckets": "4"})
	f.writeDay(b)
	q := f.querier(b, true, func(c *query.Config) { c.Costs = query.HBaseCosts() })
	f.compact()
	name := matcher(labels.MatchEqual, "__name__", "requests_total")
	shapes := []struct {
		name          string
		hours, series int
		ms            []*labels.Matcher
	}{
		{"1of10000_24h", 24, 1, []*labels.Matcher{name, matcher(labels.MatchEqual, "instance", "host-01234:9100")}},
		{"1000of10000_6h", 6, 1000, []*labels.Matcher{name, matcher(labels.MatchEqual, "job", "job-3")}},
		{"metric_1h", 1, daySeries, []*labels.Matcher{name}},
	}
	plans := []string{"cost", "get", "scan"}
	from := int64(benchDay) * 24 * mapping.HourMs
	for end := time.Now().Add(f.warmUp); time.Now().Before(end); {
		for _, s := range shapes {
			for _, plan := range plans {
				q.ForceMethod(plan)
				if _, err := q.Explain(b.Context(), from, from+int64(s.hours)*mapping.HourMs-1, s.ms, true); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for _, s := range shapes {
		for _, plan := range plans {
			b.Run(s.name+"/"+plan, func(b *testing.B) {
				q.ForceMethod(plan)
				f.run(b, q, benchDay, s.hours, s.series, s.ms...)
			})
		}
	}
}
