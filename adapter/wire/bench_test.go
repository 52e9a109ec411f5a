package wire_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping/request"
)

// bodyV1 is what Prometheus sends: one sample for each of n series, with so many labels.
func bodyV1(n, labels int) []byte {
	var msg prompb.WriteRequest
	for i := range n {
		ts := prompb.TimeSeries{Samples: []prompb.Sample{{Value: float64(i) * 1.5, Timestamp: 1_700_000_000_000 + int64(i)}}}
		eachLabel(i, labels, func(name, value string) {
			ts.Labels = append(ts.Labels, prompb.Label{Name: name, Value: value})
		})
		msg.Timeseries = append(msg.Timeseries, ts)
	}
	body, err := msg.Marshal()
	if err != nil {
		panic(err)
	}
	return body
}

func bodyV2(n, labels int) []byte {
	symbols := writev2.NewSymbolTable()
	var msg writev2.Request
	for i := range n {
		ts := writev2.TimeSeries{
			Samples: []writev2.Sample{{Value: float64(i) * 1.5, Timestamp: 1_700_000_000_000 + int64(i)}},
			Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER,
				HelpRef: symbols.Symbolize("What it counts.")},
		}
		eachLabel(i, labels, func(name, value string) {
			ts.LabelsRefs = append(ts.LabelsRefs, symbols.Symbolize(name), symbols.Symbolize(value))
		})
		msg.Timeseries = append(msg.Timeseries, ts)
	}
	msg.Symbols = symbols.Symbols()
	body, err := msg.Marshal()
	if err != nil {
		panic(err)
	}
	return body
}

func eachLabel(series, labels int, f func(name, value string)) {
	f("__name__", "http_requests_total")
	for i := range labels - 1 {
		f(fmt.Sprintf("label_%d", i), fmt.Sprintf("value-%d-%d", i, series%(1<<i)))
	}
}

func BenchmarkDecodeV1(b *testing.B) { benchmarkDecode(b, bodyV1, (*wire.Decoder).DecodeV1) }
func BenchmarkDecodeV2(b *testing.B) { benchmarkDecode(b, bodyV2, (*wire.Decoder).DecodeV2) }

func benchmarkDecode(b *testing.B, body func(n, labels int) []byte,
	decode func(*wire.Decoder, []byte, *request.Write) (wire.Counts, error)) {
	const samples = 2000
	for _, labels := range []int{6, 10} {
		b.Run(fmt.Sprintf("labels=%d", labels), func(b *testing.B) {
			body := body(samples, labels)
			d := wire.Decoder{MaxBytes: 128 << 20}
			var req request.Write
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if c, err := decode(&d, body, &req); err != nil || len(req.Samples) != samples || len(req.Series) != samples {
					b.Fatal(c, err)
				}
			}
			b.ReportMetric(samples*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
