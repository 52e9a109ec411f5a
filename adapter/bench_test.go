package adapter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/mapping/request"
)

// discardAppender stores nothing.
type discardAppender struct{}

func (discardAppender) Append(_ context.Context, req *request.Write) (request.Result, error) {
	return request.Result{Written: len(req.Samples)}, nil
}

func benchmarkHandler(b *testing.B, series ...fakeSeries) http.Handler {
	b.Helper()
	h, err := adapter.New(adapter.Config{Appender: discardAppender{}, Querier: &fakeQuerier{series: series},
		Gatherer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	h.SetReady()
	return h
}

func newRequest(body []byte, contentType string) (*http.Request, *httptest.ResponseRecorder) {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return r, httptest.NewRecorder()
}

func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct{ name, contentType string }{{"1.0", typeV1}, {"2.0", typeV2}} {
		b.Run(c.name, func(b *testing.B) {
			v1, v2 := &prompb.WriteRequest{}, &writev2.Request{}
			table := writev2.NewSymbolTable()
			for i := range 2000 {
				ts := up(prompb.Sample{Timestamp: 1_700_000_000_000 + int64(i), Value: float64(i) * 1.1})
				var refs []uint32
				for j := range 6 {
					ts.Labels = append(ts.Labels, prompb.Label{
						Name: fmt.Sprintf("label_%d", j), Value: fmt.Sprintf("value-%d", i%(1<<j))})
				}
				for _, l := range ts.Labels {
					refs = append(refs, table.Symbolize(l.Name), table.Symbolize(l.Value))
				}
				v1.Timeseries = append(v1.Timeseries, ts)
				v2.Timeseries = append(v2.Timeseries, writev2.TimeSeries{LabelsRefs: refs,
					Samples: []writev2.Sample{{Timestamp: ts.Samples[0].Timestamp, Value: ts.Samples[0].Value}}})
			}
			v2.Symbols = table.Symbols()
			body := block(b, v1)
			if c.contentType == typeV2 {
				body = block(b, v2)
			}
			h := benchmarkHandler(b)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				r, w := newRequest(body, c.contentType)
				h.ServeHTTP(w, r)
				if w.Code != 204 {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(2000*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	const series, samples = 100, 5760 // a day at 15 s
	runs := points(slices.Repeat([]int{240}, samples/240)...)
	var all []fakeSeries
	for i := range series {
		all = append(all, named("requests_total", runs, "instance", fmt.Sprint(i)))
	}
	h := benchmarkHandler(b, all...)
	for _, form := range forms {
		b.Run(form.String(), func(b *testing.B) {
			body := readBlock(b, form, &prompb.Query{EndTimestampMs: math.MaxInt64})
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/read", bytes.NewReader(body)))
				if w.Code != 200 {
					b.Fatal(w.Code, w.Body)
				}
				b.SetBytes(int64(w.Body.Len()))
			}
			b.ReportMetric(series*samples*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
