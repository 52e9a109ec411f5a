package stress_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

const (
	contentV1 = "application/x-protobuf;proto=" + remotetest.MessageV1
	contentV2 = "application/x-protobuf;proto=" + remotetest.MessageV2
	writeURL  = "/api/v1/write"
	otlpURL   = "/api/v1/otlp/v1/metrics"
)

// writing is an attack that writes series, made anew each time.
func writing(series func(c *stressClient) []remotetest.Series) func(*stressClient) {
	return func(c *stressClient) {
		encode, contentType := remotetest.EncodeV1, contentV1
		if c.turn%2 == 1 {
			encode, contentType = remotetest.EncodeV2, contentV2
		}
		content, err := encode(series(c))
		if err != nil {
			c.problem("%v", err)
			return
		}
		c.do(http.MethodPost, writeURL, bytes.NewReader(snappy.Encode(nil, content)), "Content-Type", contentType,
			"Content-Encoding", "snappy")
	}
}

// evil is a series of attackers, with names and values of labels in turn.
func evil(name string, labels ...string) remotetest.Series {
	s := remotetest.Series{Labels: []prompb.Label{{Name: "__name__", Value: name}},
		Samples: []request.Sample{{T: time.Now().UnixMilli(), V: 1}}}
	for i := 0; i < len(labels); i += 2 {
		s.Labels = append(s.Labels, prompb.Label{Name: labels[i], Value: labels[i+1]})
	}
	return s
}

// many makes a request of n series.
func many(n int, one func(c *stressClient, i int) remotetest.Series) func(*stressClient) []remotetest.Series {
	return func(c *stressClient) (series []remotetest.Series) {
		for i := range n {
			series = append(series, one(c, i))
		}
		return series
	}
}

// fresh is a text that was not there before.
func (c *stressClient) fresh(i int) string {
	return fmt.Sprintf("%d_%d_%d_%x", c.number, c.turn, i, rand.Uint64())
}

// writeAttacks are write requests that are as they should be, but too many or too large.
func writeAttacks() []stressAttack {
	const newNames, labelLimit = "400 new_names_limit", "400 label_limit"
	const none = "204"
	return []stressAttack{
		{"new label values", 6, []string{newNames, none}, writing(many(2000, func(c *stressClient, i int) remotetest.Series {
			return evil("evil", "n", c.fresh(i))
		}))},
		{"new series of old names", 4, []string{none, newNames, "400 active_series_limit"}, writing(many(2000,
			func(c *stressClient, i int) remotetest.Series {
				return evil("evil", "a", fmt.Sprint(c.random.IntN(1000)), "b", fmt.Sprint(c.random.IntN(1000)), "c", fmt.Sprint(i))
			}))},
		{"new metric names", 4, []string{none, newNames, "400 active_series_limit"}, writing(many(2000,
			func(c *stressClient, i int) remotetest.Series { return evil("evil_" + c.fresh(i)) }))},
		{"new label names", 4, []string{none, newNames, "400 active_series_limit"}, writing(many(500, func(c *stressClient,
			i int) remotetest.Series {
			return evil("evil", "l"+c.fresh(i), "x", "m"+c.fresh(i), "x")
		}))},
		{"labels as long as may be", 4, []string{none, newNames, "400 active_series_limit"}, writing(many(8,
			func(c *stressClient, i int) remotetest.Series {
				s := evil("evil")
				for n := range 127 {
					s.Labels = append(s.Labels, prompb.Label{
						Name: fmt.Sprintf("l%0999d", n), Value: c.fresh(i) + strings.Repeat("x", 8000),
					})
				}
				return s
			}))},
		{"labels that are too long or too many", 4, []string{labelLimit},
			writing(many(30, func(c *stressClient, i int) remotetest.Series {
				switch i % 3 {
				case 0:
					return evil("evil", "l", strings.Repeat("x", 9000))
				case 1:
					return evil("evil", strings.Repeat("l", 2000), "x")
				}
				s := evil("evil")
				for n := range 2000 {
					s.Labels = append(s.Labels, prompb.Label{Name: fmt.Sprintf("l%04d", n), Value: "x"})
				}
				return s
			}))},
		{"one series again and again", 4, []string{none},
			writing(many(10_000, func(c *stressClient, i int) remotetest.Series {
				s := evil("evil_again")
				s.Samples[0].T -= int64(i)
				return s
			}))},
		{"one hour again and again", 4, []string{none}, writing(func(c *stressClient) []remotetest.Series {
			s := evil("evil_hour", "n", fmt.Sprint(c.number))
			for i := range int64(20_000) {
				s.Samples = append(s.Samples, request.Sample{T: 3_600_000*400_000 + i%3_600_000, V: c.random.Float64()})
			}
			return []remotetest.Series{s}
		})},
		{"samples of all ages", 4, []string{none, "400 active_series_limit"}, writing(many(20, func(c *stressClient,
			i int) remotetest.Series {
			s := evil("evil_ages", "n", fmt.Sprintf("%d_%d", c.number, i))
			s.Samples = nil
			for hour := range int64(500) {
				s.Samples = append(s.Samples, request.Sample{T: 3_600_000 * (hour*700 + c.random.Int64N(700)), V: 1})
			}
			return s
		}))},
		{"times that cannot be", 4, []string{"400 timestamp"},
			writing(many(1000, func(c *stressClient, i int) remotetest.Series {
				s := evil("evil_time")
				s.Samples[0].T = []int64{-1, 1 << 62, -1 << 63, time.Now().Add(24 * time.Hour).UnixMilli()}[i%4]
				return s
			}))},
		{"exemplars", 4, []string{none}, writing(many(50, func(c *stressClient, i int) remotetest.Series {
			s := evil("evil_exemplars", "n", fmt.Sprint(i))
			for n := range 200 {
				s.Exemplars = append(s.Exemplars, request.Sample{T: s.Samples[0].T - c.random.Int64N(1e10), V: float64(n)})
			}
			return s
		}))},
		{"metadata", 6, []string{none, "503", "400 metadata"}, func(c *stressClient) {
			var req prompb.WriteRequest
			for i := range 500 {
				req.Metadata = append(req.Metadata, prompb.MetricMetadata{MetricFamilyName: "evil_" + c.fresh(i),
					Help: strings.Repeat("x", 60_000)})
			}
			content, _ := req.Marshal()
			c.do(http.MethodPost, writeURL, bytes.NewReader(snappy.Encode(nil, content)), "Content-Type", contentV1,
				"Content-Encoding", "snappy")
		}},
		{"histograms of very many buckets", 4, []string{"400 histogram", none}, histogramAttack(func(c *stressClient,
			h *prompb.Histogram) {
			switch c.turn % 4 {
			case 0:
				h.PositiveSpans = []prompb.BucketSpan{{Length: 1<<32 - 1}}
			case 1:
				h.PositiveSpans = make([]prompb.BucketSpan, 1_000_000)
			case 2:
				h.PositiveSpans = []prompb.BucketSpan{{Length: 500_000}}
				h.PositiveDeltas = make([]int64, 500_000)
			case 3:
				h.Schema, h.CustomValues = -53, make([]float64, 500_000)
			}
		})},
		{"histograms of many buckets", 4, []string{none, "400 histogram"}, histogramAttack(func(c *stressClient,
			h *prompb.Histogram) {
			h.PositiveSpans = []prompb.BucketSpan{{Length: 5000}}
			h.PositiveDeltas = make([]int64, 5000)
			h.PositiveDeltas[0] = 1
			h.Count = &prompb.Histogram_CountInt{CountInt: 5000}
		})},
		{"label calls about what attackers wrote", 32, []string{"200", "503"}, anyOf(asking("/api/v1/label/n/values"),
			asking("/api/v1/labels", "limit", "1"), asking("/api/v1/series", "match[]", "evil", "limit", "1"),
			asking("/api/v1/label/__name__/values", "match[]", `{n=~".*1.*"}`), asking("/api/v1/status/tsdb"))},
		{"queries of what attackers wrote", 8, []string{"200", "422", "503"}, anyOf(
			asking("/api/v1/query", "query", `{__name__=~"evil.*"}[100y]`), asking("/api/v1/metadata"),
			asking("/api/v1/query_exemplars", "query", "evil_exemplars", "start", "0", "end", fmt.Sprint(time.Now().Unix())))},
	}
}

// histogramAttack writes histograms.
func histogramAttack(spoil func(c *stressClient, h *prompb.Histogram)) func(*stressClient) {
	return func(c *stressClient) {
		var req prompb.WriteRequest
		for i := range 4 {
			h := prompb.Histogram{Timestamp: time.Now().UnixMilli() - int64(i), Sum: 1,
				Count:     &prompb.Histogram_CountInt{CountInt: 1},
				ZeroCount: &prompb.Histogram_ZeroCountInt{}}
			spoil(c, &h)
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
				Labels: evil("evil_histogram", "n", fmt.Sprint(c.number)).Labels, Histograms: []prompb.Histogram{h},
			})
		}
		content, err := req.Marshal()
		if err != nil {
			c.problem("%v", err)
			return
		}
		c.do(http.MethodPost, writeURL, bytes.NewReader(snappy.Encode(nil, content)), "Content-Type", contentV1,
			"Content-Encoding", "snappy")
	}
}

// decodeAttacks are bodies of which very much would be made, or that are not what they say.
func decodeAttacks() []stressAttack {
	const inFlight, bodyBytes = "503 --write.max-in-flight-bytes", "400 --write.max-body-bytes"
	block := func(element string, bytes int) func() []byte {
		return func() []byte { return snappy.Encode(nil, []byte(strings.Repeat(element, bytes/len(element)))) }
	}
	inside := func(tag byte, element string, bytes int) func() []byte {
		return func() []byte { return snappy.Encode(nil, wrap(tag, strings.Repeat(element, bytes/len(element)))) }
	}
	zipped := func(content func() string) func() []byte {
		return func() []byte {
			var out bytes.Buffer
			zw := gzip.NewWriter(&out)
			_, _ = zw.Write([]byte(content()))
			_ = zw.Close()
			return out.Bytes()
		}
	}
	v1 := func(body func() []byte) func(*stressClient) { return posting(writeURL, contentV1, "snappy", body) }
	v2 := func(body func() []byte) func(*stressClient) { return posting(writeURL, contentV2, "snappy", body) }
	const all = 31 << 20
	repeated := func(element string, bytes int) func() string {
		return func() string { return strings.Repeat(element, bytes/len(element)) }
	}
	otlp := func(encoding string, body func() []byte) func(*stressClient) {
		return posting(otlpURL, "application/x-protobuf", encoding, body)
	}
	text := func(s string) func() []byte { return func() []byte { return []byte(s) } }
	return []stressAttack{
		{"empty series", 20, []string{inFlight, bodyBytes, "204"}, anyOf(v1(block("\x0a\x00", all)), v2(block("\x2a\x00",
			all)),
			v1(block("\x0a\x00", 8<<20)))},
		{"empty samples and labels", 20, []string{inFlight, bodyBytes, "204", "400 malformed_series", "400 invalid_labels"},
			anyOf(
				v1(inside(0x0a, "\x12\x00", all)), v1(inside(0x0a, "\x0a\x00", all)), v1(inside(0x0a, "\x1a\x00", all)),
				v1(inside(0x0a, "\x22\x00", all)),
				v1(block("\x1a\x00", all)), v2(block("\x22\x00", all)), v2(inside(0x2a, "\x12\x00", all)), v2(inside(0x2a,
					"\x1a\x00", all)), v2(inside(0x2a, "\x22\x00", all)))},
		{"snappy that claims much", 20, []string{"400"}, anyOf(
			v1(text("\xff\xff\xff\xff\x0f\x00")), v1(text("\xff\xff\xff\x0f\x00")), v1(text("\x80\x80\x80\x10\x00")),
			posting("/api/v1/read", "application/x-protobuf", "snappy", text("\xff\xff\xff\xff\x0f\x00")))},
		{"snappy that becomes too much", 8, []string{bodyBytes}, v1(block("\x00", 60<<20))},
		{"bodies that are too long", 8, []string{"413"}, v1(func() []byte { return make([]byte, 33<<20) })},
		{"one version announced as the other", 4, []string{"400"}, anyOf(
			v2(func() []byte {
				b, _ := remotetest.EncodeV1([]remotetest.Series{evil("evil")})
				return snappy.Encode(nil, b)
			}),
			v1(func() []byte {
				b, _ := remotetest.EncodeV2([]remotetest.Series{evil("evil")})
				return snappy.Encode(nil, b)
			}))},
		{"no type, or another", 4, []string{"415", "400 snappy"}, anyOf(posting(writeURL, "", "", text("x")),
			posting("/api/v1/read", "text/plain", "", text("x")),
			posting(writeURL, contentV1, "gzip", text("x")), posting(otlpURL, "application/x-protobuf", "zstd", text("x")))},
		{"other origins", 8, []string{"403"}, func(c *stressClient) {
			path := []string{writeURL, "/api/v1/read", otlpURL, "/api/v1/admin/tsdb/delete_series"}[c.turn%4]
			c.do(http.MethodPost, path, strings.NewReader("x"), "Origin", "https://evil.example", "Content-Type", "text/plain")
		}},
		{"preflights", 8, []string{"204", "403", "405"}, func(c *stressClient) {
			c.do(http.MethodOptions, "/api/v1/query", nil, "Origin", "https://evil.example", "Access-Control-Request-Method",
				"DELETE")
		}},
		{"OTLP of empty elements", 20, []string{"413 --write.max-body-bytes", inFlight}, anyOf(
			otlp("gzip", zipped(repeated("\x0a\x00", 28<<20))), otlp("", func() []byte {
				return wrap(0x0a,
					strings.Repeat("\x12\x00", 15<<20))
			}),
			posting(otlpURL, "application/json", "gzip", zipped(func() string {
				return `{"resourceMetrics":[` + strings.Repeat("{},", 5<<20) + "{}]}"
			})))},
		{"OTLP that gzip makes too much", 8, []string{"413 --write.max-body-bytes"}, otlp("gzip", zipped(repeated("\x00",
			200<<20)))},
		{"OTLP that is nested", 8, []string{"400 nested too deep"}, anyOf(
			posting(otlpURL, "application/json", "", text(strings.Repeat(`{"a":[`, 100_000))),
			otlp("", func() []byte {
				body := []byte("x")
				for range 3000 {
					body = wrap(0x0a, string(body))
				}
				return body
			}))},
		{"garbage for writes", 8, []string{"400"}, anyOf(v1(func() []byte { return []byte(strings.Repeat("garbage", 1000)) }),
			v1(block("\x0a\xff\xff\xff\xff\x0f", 1<<20)), v2(block("\xff", 1<<20)), otlp("", text(strings.Repeat("\xff",
				10_000))),
			otlp("gzip", text("no gzip at all")))},
		{"what is not served", 8, []string{"404"}, anyOf(
			posting("/internal/v1/held", "application/octet-stream", "", func() []byte { return make([]byte, 1<<20) }),
			asking("/internal/v1/held"), asking("/debug/pprof/profile", "seconds", "60"), asking("/api/v1/admin/tsdb"),
			asking("/api/v2/write"))},
	}
}

// wrap is a message with one field.
func wrap(tag byte, content string) []byte {
	b := []byte{tag}
	n := uint64(len(content))
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(append(b, byte(n)), content...)
}
