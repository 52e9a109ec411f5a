package adapter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	configutil "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage/remote"
	"go.uber.org/goleak"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAppender keeps what it gets as text. Before it does, it asks before, which may be nil.
type fakeAppender struct {
	before func(ctx context.Context, req *request.Write) (request.Result, error)

	mu  sync.Mutex // guards got
	got []string
}

func (a *fakeAppender) Append(ctx context.Context, req *request.Write) (request.Result, error) {
	result := request.Result{
		Written: len(req.Samples), Histograms: len(req.Histograms),
		Exemplars: request.ExemplarResult{Written: len(req.Exemplars)},
	}
	if a.before != nil {
		var err error
		if result, err = a.before(ctx, req); err != nil {
			return result, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range req.Series {
		var b strings.Builder
		if err := request.ParseLabels(req.LabelsOf(i), func(name, value []byte) error {
			fmt.Fprintf(&b, "%s=%s ", name, value)
			return nil
		}); err != nil {
			return result, err
		}
		for _, p := range req.Samples[s.From:s.To] {
			fmt.Fprintf(&b, "%d:%v ", p.T, p.V)
		}
		a.got = append(a.got, strings.TrimSpace(b.String()))
	}
	for _, e := range req.Exemplars {
		a.got = append(a.got, fmt.Sprintf("exemplar of %d: %d:%v", e.Series, e.T, e.V))
	}
	for _, m := range req.Metadata {
		a.got = append(a.got, fmt.Sprintf("metadata of %s: %s %s %s", m.Family, m.Type, m.Help, m.Unit))
	}
	return result, nil
}

// fakeSeries is one series of a fakeQuerier, its points in runs.
type fakeSeries struct {
	labels labels.Labels
	runs   []mapping.Points
}

// fakeQuerier has all series in memory and in order. It does not look at the time range, but notes it.
type fakeQuerier struct {
	series []fakeSeries
	err    error                           // of Select
	setErr error                           // of the set, after its last series
	gate   func(ctx context.Context) error // called by each Next; nil: nothing
	warns  []error                         // of the set

	mu     sync.Mutex // guards asked and closed
	asked  []string
	closed int
}

func (q *fakeQuerier) Select(ctx context.Context, mint, maxt int64, labelsOnly bool,
	ms []*labels.Matcher) (query.SeriesSet, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked = append(q.asked, fmt.Sprint(mint, maxt, labelsOnly, ms))
	if q.err != nil {
		return nil, q.err
	}
	set := &fakeSet{querier: q, ctx: ctx, at: -1, labelsOnly: labelsOnly, warnings: q.warns}
	for _, s := range q.series {
		matches := true
		for _, m := range ms {
			matches = matches && m.Matches(s.labels.Get(m.Name))
		}
		if matches {
			set.series = append(set.series, s)
		}
	}
	return set, nil
}

type fakeSet struct {
	querier    *fakeQuerier
	ctx        context.Context
	series     []fakeSeries
	labelsOnly bool
	at, run    int
	err        error
	warnings   []error
}

func (s *fakeSet) Next() bool {
	s.at++
	s.run = 0
	if s.querier.gate != nil {
		if s.err = s.querier.gate(s.ctx); s.err != nil {
			return false
		}
	}
	if s.at >= len(s.series) {
		s.err = s.querier.setErr
		return false
	}
	return true
}

func (s *fakeSet) Labels() labels.Labels { return s.series[s.at].labels }

func (s *fakeSet) Points() *mapping.Points {
	runs := s.series[s.at].runs
	if s.labelsOnly || s.run >= len(runs) {
		return nil
	}
	s.run++
	return &runs[s.run-1]
}

func (s *fakeSet) Err() error { return s.err }

func (s *fakeSet) Warnings() []error { return s.warnings }

func (s *fakeSet) Close() {
	s.querier.mu.Lock()
	defer s.querier.mu.Unlock()
	s.querier.closed++
}

// server is a handler on a real port, its parts and its metrics.
type server struct {
	*httptest.Server
	handler  *adapter.Handler
	appender *fakeAppender
	querier  *fakeQuerier
	registry *prometheus.Registry
	log      *bytes.Buffer
}

func newServer(t testing.TB, change func(*adapter.Config)) *server {
	t.Helper()
	s := newStartingServer(t, change)
	s.handler.SetReady()
	return s
}

// newStartingServer is newServer, not ready yet.
func newStartingServer(t testing.TB, change func(*adapter.Config)) *server {
	t.Helper()
	s := &server{appender: &fakeAppender{}, querier: &fakeQuerier{}, registry: prometheus.NewRegistry(),
		log: &bytes.Buffer{}}
	c := adapter.Config{
		Appender: s.appender, Querier: s.querier, Registerer: s.registry, Gatherer: s.registry,
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: s.log}, nil)), Version: "1.2.3",
	}
	if change != nil {
		change(&c)
	}
	var err error
	if s.handler, err = adapter.New(c); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s.handler)
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

type lockedWriter struct {
	mu sync.Mutex // guards w
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// metric is the sum of a metric over its labels.
func (s *server) metric(t testing.TB, name string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// wantMetrics compares the metrics of one name, in the text format without help and type.
func (s *server) wantMetrics(t testing.TB, name string, lines ...string) {
	t.Helper()
	families, err := testutil.GatherAndCount(s.registry, name)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	response, err := s.Client().Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := got.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	if families != len(lines) {
		t.Errorf("got %d metrics named %s, want %d", families, name, len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(got.String(), "\n"+name+line+"\n") {
			t.Errorf("no metric %s%s among\n%s", name, line, grep(got.String(), name))
		}
	}
}

func grep(text, part string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, part) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (s *server) clientConfig(t testing.TB, path string) *remote.ClientConfig {
	t.Helper()
	u, err := url.Parse(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	return &remote.ClientConfig{
		URL: &configutil.URL{URL: u}, Timeout: model.Duration(20 * time.Second), ChunkedReadLimit: 50_000_000,
	}
}

// post sends a body, of 1.0 if the headers do not say otherwise, and returns the status, the headers and the text of
// the answer.
func (s *server) post(t testing.TB, path string, body []byte, headers ...string) (int, http.Header, string) {
	t.Helper()
	if !slices.Contains(headers, "Content-Type") {
		headers = append([]string{"Content-Type", typeV1}, headers...)
	}
	return s.send(t, http.MethodPost, path, body, headers...)
}

func (s *server) send(t testing.TB, method, path string, body []byte, headers ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, text.String()
}
