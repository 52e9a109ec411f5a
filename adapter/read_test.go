package adapter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store"
)

const (
	formSamples  = prompb.ReadRequest_SAMPLES
	formStreamed = prompb.ReadRequest_STREAMED_XOR_CHUNKS
)

var forms = []prompb.ReadRequest_ResponseType{formSamples, formStreamed}

// points makes runs of so many points each, 15 s apart.
func points(sizes ...int) (runs []mapping.Points) {
	t := int64(1_700_000_000_000)
	for _, n := range sizes {
		var p mapping.Points
		for range n {
			p.Append(t, math.Sin(float64(t)))
			t += 15000
		}
		runs = append(runs, p)
	}
	return runs
}

func named(name string, runs []mapping.Points, pairs ...string) fakeSeries {
	return fakeSeries{labels.FromStrings(append([]string{"__name__", name}, pairs...)...), runs}
}

// odd are the values that encoders lose first.
func odd() []mapping.Points {
	var p mapping.Points
	for i, bits := range []uint64{1 << 63, 0, 0x7ff0000000000002, 0x7ff8000000000001, 0xfff8dead00000000,
		math.Float64bits(math.Inf(1)), math.Float64bits(math.Inf(-1)), 1, math.Float64bits(1.5)} {
		p.Append(int64(i)*1000, math.Float64frombits(bits))
	}
	return []mapping.Points{p}
}

func (s fakeSeries) String() string {
	var b strings.Builder
	b.WriteString(s.labels.String())
	for _, run := range s.runs {
		for i := range run.T {
			fmt.Fprintf(&b, " %d:%x", run.T[i], math.Float64bits(run.V[i]))
		}
	}
	return b.String()
}

// collect renders a set as fakeSeries are; series that came in several frames become one.
func collect(t testing.TB, set storage.SeriesSet) (got []string, err error) {
	t.Helper()
	last := ""
	for set.Next() {
		series := set.At()
		name := series.Labels().String()
		var b strings.Builder
		it := series.Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			ts, v := it.At()
			fmt.Fprintf(&b, " %d:%x", ts, math.Float64bits(v))
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		if name == last && len(got) > 0 {
			got[len(got)-1] += b.String()
			continue
		}
		got, last = append(got, name+b.String()), name
	}
	return got, set.Err()
}

func (s *server) read(t testing.TB, form prompb.ReadRequest_ResponseType, queries ...*prompb.Query) ([]string, error) {
	t.Helper()
	config := s.clientConfig(t, "/api/v1/read")
	config.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{form}
	client, err := remote.NewReadClient("test", config)
	if err != nil {
		t.Fatal(err)
	}
	set, err := client.ReadMultiple(t.Context(), queries, false)
	if err != nil {
		return nil, err
	}
	return collect(t, set)
}

func all(ms ...*prompb.LabelMatcher) *prompb.Query {
	return &prompb.Query{StartTimestampMs: 0, EndTimestampMs: math.MaxInt64, Matchers: ms}
}

func eq(name, value string) *prompb.LabelMatcher {
	return &prompb.LabelMatcher{Name: name, Value: value}
}

func TestRead_PrometheusClientGetsEveryBit(t *testing.T) {
	series := []fakeSeries{
		named("a", odd()),
		named("b", points(120), "job", "x"),
		named("c", points(1, 119, 1, 500, 3), "job", "ü \"\n"),
		named("d", points(200_000)), // several frames
		named("e", nil),
	}
	for _, form := range forms {
		t.Run(form.String(), func(t *testing.T) {
			s := newServer(t, nil)
			s.querier.series = series
			got, err := s.read(t, form, all())
			var want []string
			for _, x := range series {
				want = append(want, x.String())
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("error %v, got\n%.3000s\nwant\n%.3000s", err, got, want)
			}
			if got := s.metric(t, "promtsd_read_sent_samples_total"); got != 200_000+624+120+9 {
				t.Errorf("got %v samples counted, want %d", got, 200_000+624+120+9)
			}
			if frames := s.metric(t, "promtsd_read_sent_frames_total"); (form == formStreamed) != (frames > 5) {
				t.Errorf("got %v frames", frames)
			}
			s.wantMetrics(t, "promtsd_read_requests_total",
				fmt.Sprintf(`{code="200",response_type="%s"} 1`, strings.ToLower(form.String())))
			if s.querier.closed != 1 {
				t.Errorf("closed %d sets, want 1", s.querier.closed)
			}
		})
	}
}

func TestRead_SeveralQueriesAnswerInOrder(t *testing.T) {
	a, b := named("a", points(3)), named("b", points(2))
	queries := []*prompb.Query{
		all(eq("__name__", "b")),
		all(eq("__name__", "nothing")),
		{StartTimestampMs: 9, EndTimestampMs: 5}, // asks for nothing
		all(&prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: "a|c"}),
	}
	want := []string{b.String(), a.String()}
	for _, form := range forms {
		t.Run(form.String(), func(t *testing.T) {
			s := newServer(t, nil)
			s.querier.series = []fakeSeries{a, b}
			got, err := s.read(t, form, queries...) // the client counts the results of the SAMPLES form
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("error %v, got %q, want %q", err, got, want)
			}
			asked := []string{
				fmt.Sprintf(`0 %d false [__name__="b"]`, math.MaxInt64),
				fmt.Sprintf(`0 %d false [__name__="nothing"]`, math.MaxInt64),
				fmt.Sprintf(`0 %d false [__name__=~"a|c"]`, math.MaxInt64),
			}
			if !slices.Equal(s.querier.asked, asked) {
				t.Errorf("asked %q, want %q", s.querier.asked, asked)
			}
		})
	}
}

func TestRead_LabelsOnly(t *testing.T) {
	for _, form := range forms {
		t.Run(form.String(), func(t *testing.T) {
			s := newServer(t, nil)
			s.querier.series = []fakeSeries{named("a", points(3)), named("b", points(2))}
			q := all()
			q.Hints = &prompb.ReadHints{Func: "series"}
			got, err := s.read(t, form, q)
			if want := []string{`{__name__="a"}`, `{__name__="b"}`}; err != nil || !slices.Equal(got, want) {
				t.Errorf("error %v, got %q, want %q", err, got, want)
			}
		})
	}
}

func TestRead_NothingFoundIsAnEmptyAnswer(t *testing.T) {
	for _, form := range forms {
		s := newServer(t, nil)
		if got, err := s.read(t, form, all()); err != nil || len(got) != 0 {
			t.Errorf("%s: got %q, error %v, want nothing", form, got, err)
		}
	}
}

// Every read that may lack samples is counted; the log is not filled with them.
func TestRead_TellsOfMissingSamplesNowAndThen(t *testing.T) {
	s := newServer(t, nil)
	s.querier.warns = []error{errors.New("samples of 3 requests may be missing")}
	for range 20 {
		if _, err := s.read(t, formSamples, all()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(s.log.String(), "samples of 3 requests may be missing"); n != 1 {
		t.Errorf("the log says it %d times, want once", n)
	}
	if n := s.metric(t, "promtsd_read_warnings_total"); n != 20 {
		t.Errorf("%v warnings are counted, want 20", n)
	}
}

func readBlock(t testing.TB, form prompb.ReadRequest_ResponseType, queries ...*prompb.Query) []byte {
	t.Helper()
	return block(t, &prompb.ReadRequest{
		Queries: queries, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{form}})
}

func TestRead_Refusals(t *testing.T) {
	good := readBlock(t, formSamples, all())
	bad := readBlock(t, formSamples, all(&prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "a", Value: "("}))
	for _, c := range []struct {
		name    string
		method  string
		body    []byte
		headers []string
		querier *fakeQuerier
		want    int
		text    string
	}{
		{"GET", "GET", nil, nil, nil, 405, "takes POST"},
		{"gzip", "POST", good, []string{"Content-Encoding", "gzip"}, nil, 415, `"gzip" is not supported`},
		{"not snappy", "POST", []byte("hello"), nil, nil, 400, "snappy"},
		{"not protobuf", "POST", snappy.Encode(nil, []byte("hello")), nil, nil, 400, "read request"},
		{"bad expression", "POST", bad, nil, nil, 400, `matcher of label "a"`},
		{"unknown form", "POST", readBlock(t, 9, all()), nil, nil, 400, "supported are SAMPLES"},
		{"too large", "POST", make([]byte, 2000), nil, nil, 413, "--read.max-request-bytes"},
		{"too large inflated", "POST", snappy.Encode(nil, make([]byte, 2000)), nil, nil, 400, "--read.max-request-bytes"},
		{"too many samples", "POST", good, nil,
			&fakeQuerier{series: []fakeSeries{named("a", points(60)), named("b", points(41))}}, 400,
			"exceeded sample limit (100): ask for less, allow more by --read.max-samples"},
		{"too many bytes", "POST", good, nil,
			&fakeQuerier{series: []fakeSeries{named("a", points(90), "l", strings.Repeat("x", 2000))}}, 400,
			"more than the 3000 bytes allowed by --read.max-response-bytes"},
		{"too many series", "POST", good, nil, &fakeQuerier{err: fmt.Errorf("%w: --query.max-series", query.ErrLimit)}, 400,
			"--query.max-series"},
		{"store unavailable", "POST", good, nil, &fakeQuerier{err: store.ErrUnavailable}, 503, "unavailable"},
		{"store fails in the middle", "POST", good, nil,
			&fakeQuerier{series: []fakeSeries{named("a", points(9))}, setErr: store.ErrCorrupt}, 500, "corrupt"},
		{"store fails in the middle of a short stream", "POST", readBlock(t, formStreamed, all()), nil,
			&fakeQuerier{series: []fakeSeries{named("a", points(9))}, setErr: store.ErrUnavailable}, 503, "unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, func(config *adapter.Config) {
				config.Read = adapter.ReadLimits{MaxRequestBytes: 1000, MaxSamples: 100, MaxResponseBytes: 3000}
				if c.querier != nil {
					config.Querier = c.querier
				}
			})
			code, header, text := s.send(t, c.method, "/api/v1/read", c.body, c.headers...)
			if code != c.want || !strings.Contains(text, c.text) {
				t.Errorf("got %d %q, want %d with %q", code, text, c.want, c.text)
			}
			if ct := header.Get("Content-Type"); !strings.HasPrefix(ct, "text/plain") || header.Get("Content-Encoding") != "" {
				t.Errorf("got headers %v for an error, want plain text", header)
			}
			if c.querier != nil && c.querier.err == nil && c.querier.closed != 1 {
				t.Errorf("closed %d sets, want 1", c.querier.closed)
			}
		})
	}
}

func TestRead_ErrorAfterTheFirstByteBreaksTheConnection(t *testing.T) {
	s := newServer(t, nil)
	s.querier.series = []fakeSeries{named("a", points(200_000))}
	s.querier.setErr = store.ErrUnavailable
	code, _, err := readAll(s, readBlock(t, formStreamed, all()))
	if code != 200 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got status %d and error %v, want 200 and then an unexpected end", code, err)
	}
	if _, err := s.read(t, formStreamed, all()); err == nil {
		t.Error("Prometheus's client takes an answer that broke off for whole")
	}
	s.wantMetrics(t, "promtsd_read_requests_total", `{code="aborted",response_type="streamed_xor_chunks"} 2`)
	if got := s.metric(t, "promtsd_read_in_flight_requests"); got != 0 {
		t.Errorf("got %v running reads, want 0", got)
	}
}

func readAll(s *server, body []byte) (int, []byte, error) {
	response, err := s.Client().Post(s.URL+"/api/v1/read", typeV1, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, got, err
}

func TestRead_CancelStopsTheSelect(t *testing.T) {
	for _, form := range forms {
		t.Run(form.String(), func(t *testing.T) {
			s := newServer(t, nil)
			s.querier.series = []fakeSeries{named("a", points(3))}
			entered := make(chan struct{})
			s.querier.gate = func(ctx context.Context) error {
				close(entered)
				<-ctx.Done()
				return ctx.Err()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/read",
				bytes.NewReader(readBlock(t, form, all())))
			if err != nil {
				t.Fatal(err)
			}
			var done sync.WaitGroup
			done.Go(func() {
				if response, err := s.Client().Do(r); err == nil {
					t.Errorf("got status %d for a canceled request", response.StatusCode)
					_ = response.Body.Close()
				}
			})
			<-entered
			cancel()
			done.Wait()
			s.Close() // waits for the handler
			if s.querier.closed != 1 || strings.Contains(s.log.String(), "ERROR") {
				t.Errorf("closed %d sets, log %q; want 1 and no error", s.querier.closed, s.log)
			}
		})
	}
}

func TestRead_ConcurrentReadsWaitTheirTurn(t *testing.T) {
	s := newServer(t, func(c *adapter.Config) { c.Read.MaxConcurrent = 1 })
	s.querier.series = []fakeSeries{named("a", points(3))}
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	s.querier.gate = func(context.Context) error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	var done sync.WaitGroup
	for range 3 {
		done.Go(func() {
			if got, err := s.read(t, formSamples, all()); err != nil || len(got) != 1 {
				t.Errorf("got %q, error %v", got, err)
			}
		})
	}
	<-entered
	for s.metric(t, "promtsd_read_waiting_requests") < 2 {
	}
	if got := s.metric(t, "promtsd_read_in_flight_requests"); got != 1 || len(entered) > 0 {
		t.Errorf("got %v running reads, want 1", got)
	}

	// One that gives up while it waits goes away without having asked for anything.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/read", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r.WithContext(ctx))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "--read.max-concurrent allows 1") {
		t.Errorf("got %d %s, want 503 that names the limit", w.Code, w.Body)
	}
	close(leave)
	done.Wait()
}
