// Package remotetest is a sender of remote write and a reader of remote read, made of Prometheus's own encoders and
// decoders, and a model that tells what the reader must get: the latest bits that were written at each time.
//
//	want := remotetest.Model{}
//	err := remotetest.WriteInTurn(ctx, promtsd.URL(), 0, series)
//	want.Write(series)
//	remotetest.AssertReads(t, promtsd.URL(), "metric_.*", want)
package remotetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtsd/promtsd/mapping/request"
)

// The messages of remote write.
const (
	MessageV1 = "prometheus.WriteRequest"        // of 1.0
	MessageV2 = "io.prometheus.write.v2.Request" // of 2.0
)

// Series is a series of a write request: its labels as they are sent, its samples, and what stands beside them.
type Series struct {
	Labels    []prompb.Label
	Samples   []request.Sample
	Exemplars []request.Sample // with their values as label TraceID
	Help      string           // of its family, a gauge of the series' name; empty: no metadata
}

// TraceID is the label of an exemplar.
const TraceID = "trace_id"

// TextOf is a value as the label of its exemplar has it.
func TextOf(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (s Series) name() string {
	i := slices.IndexFunc(s.Labels, func(l prompb.Label) bool { return l.Name == "__name__" })
	return s.Labels[i].Value
}

// absentZero stands for -0 until a message is encoded: the generated encoders leave -0 out as if it were 0.
var absentZero = math.Float64frombits(0x7ff8_0ddb_a115_0001)

// withNegativeZero puts -0 back into an encoded message.
func withNegativeZero(message []byte) []byte {
	fixed64 := func(v float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)) }
	return bytes.ReplaceAll(message, fixed64(absentZero), fixed64(math.Copysign(0, -1)))
}

func encodable(v float64) float64 {
	if v == 0 && math.Signbit(v) {
		return absentZero
	}
	return v
}

// EncodeV1 is the series as a prometheus.WriteRequest.
func EncodeV1(series []Series) ([]byte, error) {
	var req prompb.WriteRequest
	for _, s := range series {
		ts := prompb.TimeSeries{Labels: s.Labels}
		for _, p := range s.Samples {
			ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: p.T, Value: encodable(p.V)})
		}
		for _, p := range s.Exemplars {
			label := prompb.Label{Name: TraceID, Value: TextOf(p.V)}
			ts.Exemplars = append(ts.Exemplars, prompb.Exemplar{Labels: []prompb.Label{label}, Timestamp: p.T, Value: p.V})
		}
		if s.Help != "" {
			req.Metadata = append(req.Metadata, prompb.MetricMetadata{
				Type: prompb.MetricMetadata_GAUGE, MetricFamilyName: s.name(), Help: s.Help,
			})
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	content, err := req.Marshal()
	return withNegativeZero(content), err
}

// EncodeV2 is the series as an io.prometheus.write.v2.Request.
func EncodeV2(series []Series) ([]byte, error) {
	symbols := writev2.NewSymbolTable()
	var req writev2.Request
	for _, s := range series {
		var ts writev2.TimeSeries
		for _, l := range s.Labels {
			ts.LabelsRefs = append(ts.LabelsRefs, symbols.Symbolize(l.Name), symbols.Symbolize(l.Value))
		}
		for _, p := range s.Samples {
			ts.Samples = append(ts.Samples, writev2.Sample{Timestamp: p.T, Value: encodable(p.V)})
		}
		for _, p := range s.Exemplars {
			label := []uint32{symbols.Symbolize(TraceID), symbols.Symbolize(TextOf(p.V))}
			ts.Exemplars = append(ts.Exemplars, writev2.Exemplar{LabelsRefs: label, Timestamp: p.T, Value: p.V})
		}
		if s.Help != "" {
			ts.Metadata = writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize(s.Help)}
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	req.Symbols = symbols.Symbols()
	content, err := req.Marshal()
	return withNegativeZero(content), err
}

// Post sends a message, which it compresses by Snappy. The caller closes the body of the response.
func Post(ctx context.Context, client *http.Client, url, contentType string, message []byte) (*http.Response, error) {
	body := bytes.NewReader(snappy.Encode(nil, message))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", contentType)
	return client.Do(req)
}

// Write sends series in one of the two messages; an answer other than 2xx is in the response, not the error. The
// body of the response is read and closed.
func Write(ctx context.Context, client *http.Client, url, message string, series []Series) (*http.Response, error) {
	encode := EncodeV1
	if message == MessageV2 {
		encode = EncodeV2
	}
	content, err := encode(series)
	if err != nil {
		return nil, err
	}
	res, err := Post(ctx, client, url+"/api/v1/write", "application/x-protobuf;proto="+message, content)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(text))
	return res, err
}

// ReadSeries is a series of an answer.
type ReadSeries struct {
	Labels  labels.Labels
	Samples []request.Sample
	Counts  []request.Sample // of native histograms, at their times
}

func (s ReadSeries) String() string {
	var b strings.Builder
	b.WriteString(s.Labels.String())
	for _, p := range s.Samples {
		fmt.Fprintf(&b, " %d:%016x", p.T, math.Float64bits(p.V))
	}
	return b.String()
}

// ResponseTypes are the two encodings that an answer of remote read may have.
var ResponseTypes = []prompb.ReadRequest_ResponseType{
	prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS,
}

// Read asks for queries in one of the two encodings and returns the series of each.
func Read(
	ctx context.Context, client *http.Client, url string, form prompb.ReadRequest_ResponseType, queries []*prompb.Query,
) ([][]ReadSeries, error) {
	content, err := (&prompb.ReadRequest{
		Queries: queries, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{form},
	}).Marshal()
	if err != nil {
		return nil, err
	}
	res, err := Post(ctx, client, url+"/api/v1/read", "application/x-protobuf", content)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return nil, fmt.Errorf("%s: %s", res.Status, text)
	}
	if form == prompb.ReadRequest_SAMPLES {
		return decodeSamples(res.Body, len(queries))
	}
	return decodeStream(res.Body, len(queries))
}

func decodeSamples(r io.Reader, queries int) ([][]ReadSeries, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var msg prompb.ReadResponse
	if body, err = snappy.Decode(nil, body); err == nil {
		err = msg.Unmarshal(body)
	}
	if err != nil {
		return nil, err
	}
	if len(msg.Results) != queries {
		return nil, fmt.Errorf("%d results for %d queries", len(msg.Results), queries)
	}
	answer := make([][]ReadSeries, queries)
	for i, result := range msg.Results {
		for _, ts := range result.Timeseries {
			s := ReadSeries{Labels: SortedLabels(ts.Labels)}
			for _, p := range ts.Samples {
				s.Samples = append(s.Samples, request.Sample{T: p.Timestamp, V: p.Value})
			}
			for _, p := range ts.Histograms {
				s.Counts = append(s.Counts, request.Sample{T: p.Timestamp, V: p.ToFloatHistogram().Count})
			}
			answer[i] = append(answer[i], s)
		}
	}
	return answer, nil
}

// decodeStream reads frames, whose chunks must say truly which times they hold. Frames of one series follow each other.
func decodeStream(r io.Reader, queries int) ([][]ReadSeries, error) {
	answer := make([][]ReadSeries, queries)
	frames := remote.NewChunkedReader(r, 50_000_000, nil)
	last := int64(0)
	for {
		var frame prompb.ChunkedReadResponse
		err := frames.NextProto(&frame)
		if errors.Is(err, io.EOF) {
			return answer, nil
		}
		if err != nil {
			return nil, err
		}
		if frame.QueryIndex < last || frame.QueryIndex >= int64(queries) {
			return nil, fmt.Errorf("a frame of query %d after one of %d, of %d queries", frame.QueryIndex, last, queries)
		}
		last = frame.QueryIndex
		for _, cs := range frame.ChunkedSeries {
			got := answer[last]
			ls := SortedLabels(cs.Labels)
			if len(got) == 0 || !labels.Equal(got[len(got)-1].Labels, ls) {
				got = append(got, ReadSeries{Labels: ls})
			}
			s := &got[len(got)-1]
			for _, c := range cs.Chunks {
				if err := decodeChunk(c, s); err != nil {
					return nil, err
				}
			}
			answer[last] = got
		}
	}
}

func decodeChunk(c prompb.Chunk, s *ReadSeries) error {
	// The two lists of encodings agree.
	chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
	if err != nil {
		return fmt.Errorf("a chunk of type %v: %w", c.Type, err)
	}
	to := &s.Samples
	if c.Type != prompb.Chunk_XOR {
		to = &s.Counts
	}
	first := len(*to)
	it := chunk.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		var p request.Sample
		if kind == chunkenc.ValFloat {
			p.T, p.V = it.At()
		} else {
			t, h := it.AtFloatHistogram(nil)
			p = request.Sample{T: t, V: h.Count}
		}
		*to = append(*to, p)
	}
	if err := it.Err(); err != nil {
		return err
	}
	got := (*to)[first:]
	if len(got) == 0 || got[0].T != c.MinTimeMs || got[len(got)-1].T != c.MaxTimeMs {
		return fmt.Errorf("a chunk that says it has %d to %d: %v", c.MinTimeMs, c.MaxTimeMs, got)
	}
	return nil
}

// SortedLabels is a label set as it was sent; an order that is not sorted shows as a wrong label set.
func SortedLabels(ls []prompb.Label) labels.Labels {
	builder := labels.NewScratchBuilder(len(ls))
	for _, l := range ls {
		builder.Add(l.Name, l.Value)
	}
	return builder.Labels()
}

// WriteInTurn writes series to promtsd: turn 0 by the message of 1.0, turn 1 by that of 2.0, and so on. An answer other
// than 204 is an error.
func WriteInTurn(ctx context.Context, url string, turn int, series []Series) error {
	message := []string{MessageV1, MessageV2}[turn%2]
	res, err := Write(ctx, http.DefaultClient, url, message, series)
	if err == nil && res.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("write to %s: %s", url, res.Status)
	}
	return err
}
