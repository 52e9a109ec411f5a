package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/pack"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/pebble/pebbletest"
	"github.com/promtsd/promtsd/store/storetest"
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

func benchAppender(tb testing.TB, st store.Store, now time.Time) *ingest.Appender {
	settings := catalog.Default()
	uids := storetest.Must(uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
		Logger: slog.New(slog.DiscardHandler),
	}))
	return storetest.Must(ingest.New(ingest.Config{
		Store: st, Settings: settings, UIDs: uids, CacheSize: 1 << 20,
		Limits: ingest.Limits{Labels: 64, LabelName: 1024, LabelValue: 4096, Future: time.Hour},
		Now:    func() time.Time { return now },
	}))
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportSamples(b *testing.B, samples int) {
	b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkWrite_WarmCache is the write path from a request's body to finished cells, all series known.
func BenchmarkWrite_WarmCache(b *testing.B) {
	st := pebbletest.Open(b, pebble.Config{})
	if _, _, err := catalog.Init(b.Context(), st, "promtsd", nil); err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	sink := &discard{Store: st}
	a := benchAppender(b, sink, now)
	const series = 10 * requestSamples
	var bodies [][]byte
	for first := 0; first < series; first += requestSamples {
		bodies = append(bodies, benchBody(b, first, now.UnixMilli()))
	}
	var (
		decoder wire.Decoder
		req     request.Write
		buf     []byte
		err     error
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

// BenchmarkWrite_Journal is buffered mode from a request's body to the acknowledgement, synced to the disk, with the
// flush of all at the end: 10,000 series every 15 s, in requests of 2,000.
func BenchmarkWrite_Journal(b *testing.B) {
	for name, message := range map[string]string{"1.0": remotetest.MessageV1, "2.0": remotetest.MessageV2} {
		b.Run(name, func(b *testing.B) {
			st, err := pebble.Open(pebble.Config{
				Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler),
				Packing: pebble.Packing{Pack: pack.Append, Unpack: pack.Expand},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			settings, _, err := catalog.Init(b.Context(), st, "promtsd", nil)
			if err != nil {
				b.Fatal(err)
			}
			uids := storetest.Must(uid.New(uid.Config{
				Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
				Logger: slog.New(slog.DiscardHandler),
			}))
			defer uids.Close()
			a := storetest.Must(ingest.New(ingest.Config{
				Store: st, Settings: settings, UIDs: uids, CacheSize: 1 << 20, Now: time.Now, SingleProcess: true,
				Limits: ingest.Limits{Active: 2_000_000, Labels: 64, LabelName: 1024, LabelValue: 4096},
				Buffer: ingest.Buffer{FlushInterval: 5 * time.Minute, MaxBytes: 512 << 20, Merge: true},
			}))
			if err := a.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			const groups = 5
			start := (time.Now().UnixMilli()/mapping.HourMs - 1) * mapping.HourMs
			var sources [groups]*benchBodies
			for i := range sources {
				sources[i] = newBenchBodies(message, newBenchValues, i*requestSamples, start)
			}
			bodies := make([][]byte, b.N+groups)
			for i := range bodies {
				body, err := sources[i%groups].next()
				if err != nil {
					b.Fatal(err)
				}
				bodies[i] = bytes.Clone(body)
			}
			var (
				decoder = wire.Decoder{Finder: a.NewFinder()}
				req     request.Write
				buf     []byte
			)
			write := func(body []byte) {
				if buf, err = wire.Inflate(buf, body, 32<<20); err != nil {
					b.Fatal(err)
				}
				decode, encoding := decoder.DecodeV1, wire.EncodingV1
				if message == remotetest.MessageV2 {
					decode, encoding = decoder.DecodeV2, wire.EncodingV2
				}
				if _, err := decode(buf, &req); err != nil {
					b.Fatal(err)
				}
				req.Encoding, req.Body = encoding, body
				if result, err := a.Append(b.Context(), &req); err != nil || result.Written != requestSamples {
					b.Fatalf("append: %+v, %v", result, err)
				}
			}
			for _, body := range bodies[:groups] { // the series become known
				write(body)
			}
			b.ReportAllocs()
			b.ResetTimer()
			began := cpuTime(b)
			for _, body := range bodies[groups:] {
				write(body)
			}
			answered := cpuTime(b)
			if err := a.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			reportSamples(b, b.N*requestSamples)
			b.ReportMetric((answered-began).Seconds()/float64(b.N*requestSamples)*1e6, "CPU-s/M-answered")
			b.ReportMetric((cpuTime(b)-began).Seconds()/float64(b.N*requestSamples)*1e6, "CPU-s/M-idle")
		})
	}
}

// BenchmarkWrite_NewSeries is the write path where every series is new: names assigned, index written, cells stored, in
// an embedded store on a file system in memory.
func BenchmarkWrite_NewSeries(b *testing.B) {
	st := pebbletest.Open(b, pebble.Config{})
	if _, _, err := catalog.Init(b.Context(), st, "promtsd", nil); err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	a := benchAppender(b, st, now)
	bodies := make([][]byte, b.N)
	for i := range bodies {
		bodies[i] = benchBody(b, i*requestSamples, now.UnixMilli())
	}
	var (
		decoder wire.Decoder
		req     request.Write
		buf     []byte
		err     error
	)
	b.ReportAllocs()
	b.ResetTimer()
	for _, body := range bodies {
		if buf, err = wire.Inflate(buf, body, 32<<20); err != nil {
			b.Fatal(err)
		}
		if _, err := decoder.DecodeV1(buf, &req); err != nil {
			b.Fatal(err)
		}
		if result, err := a.Append(b.Context(), &req); err != nil || result.Written != requestSamples {
			b.Fatalf("append: %+v, %v", result, err)
		}
	}
	reportSamples(b, b.N*requestSamples)
}

// BenchmarkRead_RowsToChunks is the read path from the cells of hour rows, one sample each 15 s in a cell of its own,
// to XOR chunks.
func BenchmarkRead_RowsToChunks(b *testing.B) {
	const base, points = 1_700_000_000 / 3600 * 3600, 240
	random := rand.New(rand.NewPCG(1, 2))
	type cell struct{ qualifier, value []byte }
	var row []cell
	for i := range points {
		v := float64(random.IntN(100_000))
		if i%2 == 0 {
			v = random.NormFloat64()
		}
		value, flags := mapping.AppendValue(nil, v)
		row = append(row, cell{mapping.AppendQualifier(nil, uint32(i)*15_000, flags), value})
	}
	var (
		rows    mapping.RowDecoder
		run     mapping.Points
		encoder query.ChunkEncoder
		size    int
	)
	emit := func(c query.Chunk) error { size += len(c.Data); return nil }
	b.ReportAllocs()
	for b.Loop() {
		rows.Reset(base)
		for _, c := range row {
			if err := rows.Add(c.qualifier, 1, c.value); err != nil {
				b.Fatal(err)
			}
		}
		run.Reset()
		rows.AppendPoints(&run, 0, mapping.MaxTime)
		if err := encoder.Encode(&run, emit); err != nil {
			b.Fatal(err)
		}
		if err := encoder.Flush(emit); err != nil {
			b.Fatal(err)
		}
	}
	reportSamples(b, b.N*points)
	if size == 0 {
		b.Fatal("no chunks")
	}
}

// benchServer is promtsd in process, on an embedded store in a temporary directory, filled with series of one hour each
// 15 s.
func benchServer(b *testing.B, series int) (url string, start int64) {
	st, err := pebble.Open(pebble.Config{Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = st.Close() })
	settings, _, err := catalog.Init(b.Context(), st, "promtsd", nil)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	a := benchAppender(b, st, now)
	uids := storetest.Must(uid.New(uid.Config{Store: st, Table: settings.Tables.UID, Logger: slog.New(slog.DiscardHandler),
		Schema: settings.Schema, Names: settings.Names}))
	b.Cleanup(uids.Close)
	handler, err := adapter.New(adapter.Config{
		Appender: a, Gatherer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Querier: storetest.Must(query.New(query.Config{
			Store: st, Settings: settings, Logger: slog.New(slog.DiscardHandler),
			Index: index.NewReader(index.Config{Store: st, Settings: settings, UIDs: uids}),
		})),
	})
	if err != nil {
		b.Fatal(err)
	}
	handler.SetReady()
	srv := httptest.NewServer(handler)
	b.Cleanup(srv.Close)
	var (
		decoder wire.Decoder
		req     request.Write
	)
	start = (now.UnixMilli()/3600_000 - 1) * 3600_000
	for t := start; t < start+3600_000; t += 15_000 {
		for first := 0; first < series; first += requestSamples {
			content, err := wire.Inflate(nil, benchBody(b, first, t), 32<<20)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := decoder.DecodeV1(content, &req); err != nil {
				b.Fatal(err)
			}
			if _, err := a.Append(b.Context(), &req); err != nil {
				b.Fatal(err)
			}
		}
	}
	return srv.URL, start
}

// BenchmarkRead_Remote is a whole remote read of an hour of 2,000 series over HTTP, by Prometheus's own client.
func BenchmarkRead_Remote(b *testing.B) {
	const series, perSeries = requestSamples, 240
	url, start := benchServer(b, series)
	for _, form := range []struct {
		name  string
		types []prompb.ReadRequest_ResponseType
	}{
		{"streamed", []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}},
		{"samples", []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES}},
	} {
		b.Run(form.name, func(b *testing.B) {
			request := prompb.ReadRequest{
				AcceptedResponseTypes: form.types,
				Queries: []*prompb.Query{{
					StartTimestampMs: start, EndTimestampMs: start + 3600_000 - 1,
					Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "cluster", Value: "prod-eu-1"}},
				}},
			}
			content, err := request.Marshal()
			if err != nil {
				b.Fatal(err)
			}
			body := wire.Deflate(nil, content)
			b.ReportAllocs()
			for b.Loop() {
				res, err := http.Post(url+"/api/v1/read", "application/x-protobuf", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != http.StatusOK || n < series*perSeries {
					b.Fatalf("status %s, %d bytes, %v", res.Status, n, err)
				}
			}
			reportSamples(b, b.N*series*perSeries)
		})
	}
}
