package promstore_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store/storetest"
)

const (
	benchMetrics   = 100
	benchInstances = 1000
	benchTime      = 20_000*day + day/2
)

// benchSeries appends a sample of each of 100,000 series: of a hundred metrics, a thousand instances, and a label of
// which each series has its own value.
func benchSeries(b *testing.B, to storage.AppendableV2) {
	for m := range benchMetrics {
		a := to.AppenderV2(b.Context())
		for i := range benchInstances {
			ls := labels.FromStrings(
				"__name__", fmt.Sprintf("metric_%02d_total", m), "instance", fmt.Sprintf("10.0.%d.%d:9100", i/250, i%250),
				"job", fmt.Sprintf("job-%d", i%10), "zone", fmt.Sprintf("zone-%d", i%3), "env", "production",
				"id", fmt.Sprintf("%08x", (m*benchInstances+i)*2654435761),
			)
			if _, err := a.Append(0, ls, 0, benchTime, 1, nil, nil, storage.AppendV2Options{}); err != nil {
				b.Fatal(err)
			}
		}
		if err := a.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// newBenchQuerier is one with or without an index in memory.
func newBenchQuerier(b *testing.B, inMemory bool) *query.Querier {
	st := stores["pebble"](b)
	b.Cleanup(func() { _ = st.Close() })
	db := querytest.New(b, st, querytest.Options{})
	benchSeries(b, promstore.Appendable{Appender: db.Appender})
	return querytest.Over(st, db.Settings, querytest.Options{Index: func(c *index.Config) {
		if !inMemory {
			return
		}
		c.Memory = storetest.Must(index.NewMemory(index.MemoryConfig{Store: st, Settings: c.Settings, MaxSeries: 1 << 20}))
		if err := c.Memory.Build(b.Context()); err != nil {
			b.Fatal(err)
		}
	}}).Querier
}

// BenchmarkLabels asks for labels of 100,000 series, of promtsd and of Prometheus's head.
func BenchmarkLabels(b *testing.B) {
	prometheus := teststorage.New(b, func(o *tsdb.Options) {
		o.MinBlockDuration, o.MaxBlockDuration, o.OutOfOrderTimeWindow = 1000*day, 1000*day, 1000*day
	})
	b.Cleanup(func() { _ = prometheus.Close() })
	benchSeries(b, prometheus)
	for name, querier := range map[string]*query.Querier{"memory": newBenchQuerier(b, true),
		"store": newBenchQuerier(b, false)} {
		benchLabels(b, name, promstore.New(promstore.Config{Querier: querier}))
		measure(b, "cardinality/"+name, 10, func(ctx context.Context) (int, error) {
			found, err := querier.Cardinality(ctx, benchTime, benchTime, 10)
			return len(found.SeriesByPair), err
		})
	}
	benchLabels(b, "prometheus", prometheus)
	measure(b, "cardinality/prometheus", 10, func(context.Context) (int, error) {
		return len(prometheus.DB.Head().Stats("__name__", 10).IndexPostingStats.LabelValuePairsStats), nil
	})
}

// measure calls f, which has to find so many.
func measure(b *testing.B, name string, want int, f func(context.Context) (int, error)) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		before := processorTime()
		defer func() { b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-us/op") }()
		for b.Loop() {
			if n, err := f(b.Context()); err != nil || n != want {
				b.Fatalf("got %d, %v, want %d", n, err, want)
			}
		}
	})
}

func benchLabels(b *testing.B, name string, from storage.Queryable) {
	q, err := from.Querier(benchTime-time.Hour.Milliseconds(), benchTime)
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	metric, job := equal("__name__", "metric_07_total"), equal("job", "job-3")
	all := labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
	names := func(limit int, ms ...*labels.Matcher) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			found, _, err := q.LabelNames(ctx, &storage.LabelHints{Limit: limit}, ms...)
			return len(found), err
		}
	}
	values := func(label string, limit int, ms ...*labels.Matcher) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			found, _, err := q.LabelValues(ctx, label, &storage.LabelHints{Limit: limit}, ms...)
			return len(found), err
		}
	}
	series := func(limit int, ms ...*labels.Matcher) func(context.Context) (int, error) {
		return func(ctx context.Context) (n int, err error) {
			set := q.Select(ctx, false, &storage.SelectHints{
				Start: benchTime - time.Hour.Milliseconds(), End: benchTime, Func: "series", Limit: limit,
			}, ms...)
			for (limit == 0 || n < limit) && set.Next() {
				n++
			}
			return n, set.Err()
		}
	}
	for _, c := range []struct {
		name string
		ask  func(context.Context) (int, error)
		want int
	}{
		{"names", names(0), 6},
		{"names-of-all", names(0, all), 6},
		{"names-of-metric", names(0, metric), 6},
		{"names-of-job", names(0, job), 6},
		{"values-metrics", values("__name__", 0), benchMetrics},
		{"values-job", values("job", 0), 10},
		{"values-instance", values("instance", 0), benchInstances},
		{"values-instance-of-metric", values("instance", 0, metric), benchInstances},
		{"values-instance-of-job", values("instance", 0, job), benchInstances / 10},
		{"values-metrics-of-job", values("__name__", 0, job), benchMetrics},
		{"values-id", values("id", 0), benchMetrics * benchInstances},
		{"values-id-limit-3", values("id", 3), 3},
		{"values-id-limit-3-of-job", values("id", 3, job), 3},
		{"series-limit-3-of-all", series(3, all), 3},
		{"series-limit-3-of-job", series(3, job), 3},
		{"series-of-metric", series(0, metric), benchInstances},
	} {
		measure(b, c.name+"/"+name, c.want, c.ask)
	}
}

// processorTime is what this process has used of all processors: others may use them, too.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
