package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
)

// requestSamples is how many series, of one sample each, a request of the benchmarks has: Prometheus's default.
const requestSamples = 2000

// benchSeries is a series with 6 to 10 labels, like those of a Kubernetes cluster.
func benchSeries(n int) []prompb.Label {
	ls := []prompb.Label{
		{Name: "__name__", Value: fmt.Sprintf("http_server_request_duration_seconds_%03d_total", n%97)},
		{Name: "cluster", Value: "prod-eu-1"},
		{Name: "instance", Value: fmt.Sprintf("10.%d.%d.%d:8080", n%7, n/251%251, n%251)},
		{Name: "job", Value: fmt.Sprintf("service-%02d", n%31)},
		{Name: "namespace", Value: fmt.Sprintf("team-%d", n%13)},
		{Name: "pod", Value: fmt.Sprintf("service-%02d-7d9f8c6b5-%05x", n%31, n)},
	}
	for i := range n % 5 {
		ls = append(ls, prompb.Label{Name: fmt.Sprintf("zone_%d", i), Value: fmt.Sprintf("value-%d", n%(i+3))})
	}
	return ls
}

// benchBody is a remote-write 1.0 body: one sample for each of requestSamples series from the first on, half of them
// counters, half floats.
func benchBody(tb testing.TB, first int, t int64) []byte {
	random := rand.New(rand.NewPCG(uint64(first), uint64(t)))
	var req prompb.WriteRequest
	for n := first; n < first+requestSamples; n++ {
		v := float64(random.IntN(1_000_000))
		if n%2 == 0 {
			v = random.NormFloat64()
		}
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels: benchSeries(n), Samples: []prompb.Sample{{Timestamp: t, Value: v}},
		})
	}
	content, err := req.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return wire.Deflate(nil, content)
}

// memStore is an embedded store on a file system in memory.
func memStore(tb testing.TB) store.Store {
	st, err := pebble.Open(pebble.Config{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

// discard is a store whose writes go nowhere: what is left is the cost of making the cells.
type discard struct {
	store.Store
	cells int
}

func (d *discard) Apply(_ context.Context, b *store.Batch) error {
	d.cells += b.Len()
	return b.Err()
}

func (d *discard) Get(context.Context, store.Get) iter.Seq2[store.Row, error] {
	return func(func(store.Row, error) bool) {}
}

func benchAppender(tb testing.TB, st store.Store, now time.Time) (*ingest.Appender, catalog.Settings) {
	settings := catalog.Default()
	uids := uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
		Logger: slog.New(slog.DiscardHandler),
	})
	return ingest.New(ingest.Config{
		Store: st, Settings: settings, UIDs: uids, CacheSize: 1 << 20,
		Limits: ingest.Limits{Labels: 64, LabelName: 1024, LabelValue: 4096, Future: time.Hour},
		Now:    func() time.Time { return now },
	}), settings
}

func reportSamples(b *testing.B, samples int) {
	b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkWrite_WarmCache is the write path from a request's body to finished cells, all series known.
func BenchmarkWrite_WarmCache(b *testing.B) {
	st := memStore(b)
	_, _, err := catalog.Init(b.Context(), st, "promtsd", nil)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	sink := &discard{Store: st}
	a, _ := benchAppender(b, sink, now)
	const series = 10 * requestSamples
	var bodies [][]byte
	for first := 0; first < series; first += requestSamples {
		bodies = append(bodies, benchBody(b, first, now.UnixMilli()))
	}
	var (
		decoder wire.Decoder
		req     mapping.WriteRequest
		buf     []byte
	)
	write := func(body []byte) {
		if buf, err = wire.Inflate(buf, body, 32<<20); err != nil {
			b.Fatal(err)
		}
		if _, err := decoder.DecodeV1(buf, &req); err != nil {
			b.Fatal(err)
		}
		result, err := a.Append(b.Context(), &req)
		if err != nil || result.Written != requestSamples {
			b.Fatalf("append: %+v, %v", result, err)
		}
	}
	for _, body := range bodies {
		write(body)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		write(bodies[i%len(bodies)])
	}
	reportSamples(b, b.N*requestSamples)
	if sink.cells < b.N*requestSamples {
		b.Fatalf("%d cells for %d samples", sink.cells, b.N*requestSamples)
	}
}
