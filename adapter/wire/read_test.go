package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping"
)

// answer is a random answer to a read: queries of series of points, and the message that prompb has for it.
func answer(t *rapid.T) (series [][]labels.Labels, points [][]mapping.Points, want prompb.ReadResponse) {
	value := rapid.OneOf(rapid.SampledFrom([]uint64{0, 1 << 63, 0x7ff0000000000002, math.Float64bits(1)}), rapid.Uint64())
	ts := rapid.OneOf(rapid.SampledFrom([]int64{0, -1, math.MaxInt64}), rapid.Int64Range(0, 1<<42))
	name := rapid.SampledFrom([]string{"a", "job", "le", "ü\n", strings.Repeat("x", 200)})
	for range rapid.IntRange(0, 3).Draw(t, "queries") {
		var ls []labels.Labels
		var ps []mapping.Points
		var result prompb.QueryResult
		for range rapid.IntRange(0, 3).Draw(t, "series") {
			m := rapid.MapOfN(name, rapid.StringN(1, 200, -1), 0, 4).Draw(t, "labels")
			l := labels.FromMap(m)
			var p mapping.Points
			out := prompb.TimeSeries{Labels: prompb.FromLabels(l, nil)}
			for range rapid.IntRange(0, 20).Draw(t, "points") {
				at, bits := ts.Draw(t, "t"), value.Draw(t, "v")
				if rapid.IntRange(0, 5).Draw(t, "histogram") == 0 {
					h := mapping.Histogram{Int: tsdbutil.GenerateTestHistogram(int64(bits % 100))}
					if bits%2 == 0 {
						h = mapping.Histogram{Float: tsdbutil.GenerateTestCustomBucketsFloatHistogram(int64(bits % 100))}
					}
					p.AppendHistogram(at, h)
					out.Histograms = append(out.Histograms, h.Message(at))
					continue
				}
				p.Append(at, math.Float64frombits(bits))
				out.Samples = append(out.Samples, prompb.Sample{Timestamp: at, Value: math.Float64frombits(bits)})
			}
			ls, ps = append(ls, l), append(ps, p)
			result.Timeseries = append(result.Timeseries, &out)
		}
		series, points = append(series, ls), append(points, ps)
		want.Results = append(want.Results, &result)
	}
	return series, points, want
}

func TestSamplesResponse_PrompbReadsTheSameBits(t *testing.T) {
	var r wire.SamplesResponse
	rapid.Check(t, func(t *rapid.T) {
		series, points, want := answer(t)
		r.Reset()
		for q := range series {
			r.Query()
			for i, l := range series[q] {
				if err := r.Series(l); err != nil {
					t.Fatal(err)
				}
				cut := rapid.IntRange(0, points[q][i].Len()).Draw(t, "cut")
				for _, run := range []mapping.Points{points[q][i].Slice(0, cut), points[q][i].Slice(cut, points[q][i].Len())} {
					if err := r.Points(&run); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		got := finished(t, &r)
		if g, w := bits(&got), bits(&want); g != w {
			t.Fatalf("got\n%s\nwant\n%s", g, w)
		}
	})
}

// finished is what a client makes of a response.
func finished(t rapid.TB, r *wire.SamplesResponse) (got prompb.ReadResponse) {
	t.Helper()
	parts, err := r.Finish()
	if err != nil {
		t.Fatal(err)
	}
	body, err := snappy.Decode(nil, bytes.Join(parts, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Unmarshal(body); err != nil {
		t.Fatalf("body %x: %v", body, err)
	}
	return got
}

// Messages of all lengths, so that what is deflated at a time ends anywhere in them.
func TestSamplesResponse_IsDeflatedWhileItIsBuilt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	taken := int64(0)
	r := wire.SamplesResponse{Take: func(n int64) error { taken += n; return nil }}
	for round := range 3 {
		r.Reset()
		taken = 0
		var want prompb.ReadResponse
		for range 7 {
			r.Query()
			result := new(prompb.QueryResult)
			for range random.IntN(40) {
				value := strings.Repeat("v", random.IntN(3000))
				if err := r.Series(labels.FromStrings("n", value, "o", "p")); err != nil {
					t.Fatal(err)
				}
				series := &prompb.TimeSeries{Labels: []prompb.Label{{Name: "n", Value: value}, {Name: "o", Value: "p"}}}
				for range random.IntN(3) {
					var p mapping.Points
					for range random.IntN(5) * random.IntN(4000) {
						s := prompb.Sample{Timestamp: int64(len(series.Samples)) * 15_000, Value: float64(random.IntN(9))}
						p.Append(s.Timestamp, s.Value)
						series.Samples = append(series.Samples, s)
					}
					if err := r.Points(&p); err != nil {
						t.Fatal(err)
					}
				}
				result.Timeseries = append(result.Timeseries, series)
			}
			want.Results = append(want.Results, result)
		}
		got := finished(t, &r)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: the client reads something else", round)
		}
		if size := int64(want.Size()); taken > size*3/4 {
			t.Errorf("round %d: %d bytes of memory for a message of %d", round, taken, size)
		}
	}
}

func TestSamplesResponse_EndsWhereMemoryEnds(t *testing.T) {
	full := errors.New("no memory")
	r := wire.SamplesResponse{Take: func(int64) error { return full }}
	r.Query()
	var p mapping.Points
	for i := range int64(10_000) {
		p.Append(i, float64(i))
	}
	if err := errors.Join(r.Series(labels.FromStrings("a", "b")), r.Points(&p)); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	r.Reset()
	r.Query()
	if err := r.Series(labels.FromStrings("a", "b")); err != nil {
		t.Errorf("a small one: %v", err)
	}
	if _, err := r.Finish(); !errors.Is(err, full) {
		t.Errorf("a small one: got %v, want %v", err, full)
	}
}

// bits renders a message so that every bit of a value shows.
func bits(m *prompb.ReadResponse) string {
	var b strings.Builder
	for _, r := range m.Results {
		b.WriteString("query\n")
		for _, ts := range r.Timeseries {
			fmt.Fprintf(&b, "  %q\n", ts.Labels)
			for _, s := range ts.Samples {
				fmt.Fprintf(&b, "    %d %016x\n", s.Timestamp, math.Float64bits(s.Value))
			}
			for _, h := range ts.Histograms {
				fmt.Fprintf(&b, "    %s\n", h.String())
			}
		}
	}
	return b.String()
}

func TestSamplesResponse_IsBounded(t *testing.T) {
	r := wire.SamplesResponse{MaxBytes: 1000}
	r.Query()
	if err := r.Series(labels.FromStrings("a", "b")); err != nil {
		t.Fatal(err)
	}
	var p mapping.Points
	for i := range int64(100) {
		p.Append(i, 1)
	}
	if err := r.Points(&p); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("got error %v for 100 samples in 1000 bytes, want ErrTooLarge", err)
	}
}

type frame struct {
	query  int64
	labels string
	chunks []prompb.Chunk
}

func readFrames(t rapid.TB, stream []byte) (frames []frame) {
	t.Helper()
	r := remote.NewChunkedReader(bytes.NewReader(stream), 50_000_000, nil)
	for {
		var msg prompb.ChunkedReadResponse
		err := r.NextProto(&msg)
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(msg.ChunkedSeries) != 1 {
			t.Fatalf("got a frame of %d series, want 1", len(msg.ChunkedSeries))
		}
		s := msg.ChunkedSeries[0]
		frames = append(frames, frame{msg.QueryIndex, fmt.Sprint(s.Labels), s.Chunks})
	}
}

func TestFrameWriter_PrometheusReadsItBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 2000).Draw(t, "frame size")
		var stream bytes.Buffer
		w := wire.NewFrameWriter(&stream, limit)
		var want, got []frame // by series
		for i := range rapid.IntRange(0, 6).Draw(t, "series") {
			l := labels.FromStrings("i", fmt.Sprint(i), "x", rapid.StringN(0, 200, -1).Draw(t, "value"))
			f := frame{query: int64(i / 2), labels: fmt.Sprint(prompb.FromLabels(l, nil))}
			if err := w.Series(int(f.query), l); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 5).Draw(t, "chunks") {
				c := prompb.Chunk{
					MinTimeMs: rapid.Int64().Draw(t, "min"), MaxTimeMs: rapid.Int64().Draw(t, "max"),
					Type: prompb.Chunk_Encoding(rapid.IntRange(1, 3).Draw(t, "type")),
					Data: rapid.SliceOfN(rapid.Byte(), 1, 400).Draw(t, "data"),
				}
				f.chunks = append(f.chunks, c)
				if err := w.Chunk(c.MinTimeMs, c.MaxTimeMs, chunkenc.Encoding(c.Type), c.Data); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, f)
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		frames := readFrames(t, stream.Bytes())
		if len(frames) != w.Frames() {
			t.Fatalf("got %d frames, want the %d counted", len(frames), w.Frames())
		}
		for _, f := range frames {
			if n := len(got); n > 0 && got[n-1].labels == f.labels {
				got[n-1].chunks = append(got[n-1].chunks, f.chunks...)
				continue
			}
			got = append(got, f)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got\n%v\nwant\n%v", got, want)
		}
	})
}

func TestFrameWriter_FramesKeepNearTheirSize(t *testing.T) {
	var stream bytes.Buffer
	w := wire.NewFrameWriter(&stream, 10_000)
	if err := w.Series(0, labels.FromStrings("a", "b")); err != nil {
		t.Fatal(err)
	}
	for i := range int64(1000) {
		if err := w.Chunk(i, i, chunkenc.EncXOR, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Frames(), stream.Len()/10_000; got < want || got > want+1 {
		t.Errorf("got %d frames of %d bytes in all, want about %d", got, stream.Len(), want)
	}
}

func TestParseReadRequest(t *testing.T) {
	streamed, samples := prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES
	type types = []prompb.ReadRequest_ResponseType
	eq := []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "up"}}
	for _, c := range []struct {
		name string
		msg  prompb.ReadRequest
		want string
		err  string
	}{
		{"no types is samples", prompb.ReadRequest{}, "samples", ""},
		{"the first known type", prompb.ReadRequest{AcceptedResponseTypes: types{9, streamed, samples}},
			"streamed_xor_chunks", ""},
		{"samples first", prompb.ReadRequest{AcceptedResponseTypes: types{samples, streamed}}, "samples", ""},
		{"unknown types", prompb.ReadRequest{AcceptedResponseTypes: types{7}}, "", "supported are SAMPLES"},
		{"matchers", prompb.ReadRequest{Queries: []*prompb.Query{
			{StartTimestampMs: 5, EndTimestampMs: 9, Matchers: []*prompb.LabelMatcher{
				eq[0],
				{Type: prompb.LabelMatcher_NEQ, Name: "a", Value: "b"},
				{Type: prompb.LabelMatcher_RE, Name: "c", Value: "d|e"},
				{Type: prompb.LabelMatcher_NRE, Name: "f", Value: ".+"},
			}},
			{},
		}}, `samples [5 9 [__name__="up" a!="b" c=~"d|e" f!~".+"] false] [0 0 [] false]`, ""},
		{"labels only, hints without a range", prompb.ReadRequest{Queries: []*prompb.Query{
			{StartTimestampMs: 5, EndTimestampMs: 9, Hints: &prompb.ReadHints{Func: "series"}},
		}}, "samples [5 9 [] true]", ""},
		{"hints narrow the range", prompb.ReadRequest{Queries: []*prompb.Query{
			{StartTimestampMs: 5, EndTimestampMs: 9, Hints: &prompb.ReadHints{StartMs: 7, EndMs: 20}},
		}}, "samples [7 9 [] false]", ""},
		{"hints beside the range", prompb.ReadRequest{Queries: []*prompb.Query{
			{StartTimestampMs: 5, EndTimestampMs: 9, Hints: &prompb.ReadHints{StartMs: 70, EndMs: 80}},
		}}, "samples [5 9 [] false]", ""},
		{"bad expression", prompb.ReadRequest{Queries: []*prompb.Query{
			{Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "job", Value: "("}}},
		}}, "", `query 0: matcher of label "job"`},
		{"bad matcher type", prompb.ReadRequest{Queries: []*prompb.Query{
			{Matchers: eq}, {Matchers: []*prompb.LabelMatcher{{Type: 4, Name: "job"}}},
		}}, "", `query 1: matcher of label "job" has the unknown type 4`},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := c.msg.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			req, err := wire.ParseReadRequest(body)
			if c.err != "" {
				if !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got error %v, want ErrMalformed with %q", err, c.err)
				}
				return
			}
			got := string(req.Type)
			for _, q := range req.Queries {
				got += fmt.Sprintf(" [%d %d %v %v]", q.MinT, q.MaxT, q.Matchers, q.LabelsOnly)
			}
			if err != nil || got != c.want {
				t.Errorf("got %s, error %v\nwant %s", got, err, c.want)
			}
		})
	}
}

func FuzzParseReadRequest(f *testing.F) {
	for _, m := range []prompb.ReadRequest{
		{},
		{Queries: []*prompb.Query{{StartTimestampMs: 1, EndTimestampMs: 2, Hints: &prompb.ReadHints{Func: "series"},
			Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "a", Value: "b.*"}}}}},
	} {
		body, err := m.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := wire.ParseReadRequest(body)
		if err != nil {
			return
		}
		for _, q := range req.Queries {
			if slices.Contains(q.Matchers, nil) {
				t.Errorf("body %x: nil matcher", body)
			}
		}
	})
}

func BenchmarkSamplesResponse(b *testing.B) {
	p := benchmarkPoints(240)
	ls := labels.FromStrings("__name__", "up", "instance", "localhost:9090", "job", "prometheus")
	var r wire.SamplesResponse
	b.ReportAllocs()
	for b.Loop() {
		r.Reset()
		r.Query()
		for range 100 {
			if err := errors.Join(r.Series(ls), r.Points(p)); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := r.Finish(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(100*240*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

func BenchmarkFrameWriter(b *testing.B) {
	ls := labels.FromStrings("__name__", "up", "instance", "localhost:9090", "job", "prometheus")
	data := make([]byte, 400)
	w := wire.NewFrameWriter(io.Discard, wire.DefaultFrameBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Series(0, ls); err != nil {
			b.Fatal(err)
		}
		for i := range int64(100) {
			if err := w.Chunk(i, i, chunkenc.EncXOR, data); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(100*120*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

func benchmarkPoints(n int) *mapping.Points {
	var p mapping.Points
	for i := range n {
		p.Append(1_700_000_000_000+int64(i)*15000, float64(i)*1.5)
	}
	return &p
}

// Small requests of which a lot would be made: each took gigabytes, or half a minute.
func TestParseReadRequest_RefusesWhatCostsTooMuch(t *testing.T) {
	regexps := func(matchers int, pattern string) []byte {
		q := &prompb.Query{}
		for range matchers {
			q.Matchers = append(q.Matchers, &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "a", Value: pattern})
		}
		return marshal(t, &prompb.ReadRequest{Queries: []*prompb.Query{q}})
	}
	grouping := &prompb.Query{Hints: &prompb.ReadHints{Grouping: make([]string, 1_000_000)}}
	for name, body := range map[string][]byte{
		"empty queries":     bytes.Repeat([]byte{0x0a, 0}, 2_000_000),
		"empty matchers":    append([]byte{0x0a, 0x80, 0x89, 0x7a}, bytes.Repeat([]byte{0x1a, 0}, 1_000_000)...),
		"accepted types":    append([]byte{0x12, 0x80, 0x89, 0x7a}, make([]byte, 2_000_000)...),
		"unknown fields":    bytes.Repeat([]byte{0x28, 0}, 2_000_000),
		"grouping":          marshal(t, &prompb.ReadRequest{Queries: []*prompb.Query{grouping}}),
		"repeats":           regexps(20, strings.Repeat("[^a]{1000}", 150)),
		"repeats of a few":  regexps(1, strings.Repeat("[^a]{1000}", 300)),
		"very long pattern": regexps(4, strings.Repeat("abcdefgh", 10_000)),
	} {
		if _, err := wire.ParseReadRequest(body); !errors.Is(err, bounds.ErrTooComplex) {
			t.Errorf("%s: got %.200v, want that it is too complex", name, err)
		}
	}
	if _, err := wire.ParseReadRequest(regexps(bounds.MaxMatchers, "a.*|b")); err != nil {
		t.Errorf("as many matchers as are allowed: %v", err)
	}
}

func marshal(t *testing.T, m *prompb.ReadRequest) []byte {
	t.Helper()
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return body
}
