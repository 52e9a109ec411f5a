package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

var clock = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// The test's data: an hour of four series.
var (
	dataEnd   = clock.UnixMilli()
	dataStart = dataEnd - time.Hour.Milliseconds()
)

// newHandler returns a handler on a store with the test's data.
func newHandler(t *testing.T, change func(*api.Config)) *api.Handler {
	return newLimitedHandler(t, 0, change)
}

// newLimitedHandler is one whose selectors may find so many series.
func newLimitedHandler(t *testing.T, maxSeries int, change func(*api.Config)) *api.Handler {
	st := storetest.NewMem()
	logger := slog.New(slog.DiscardHandler)
	now := func() time.Time { return clock }
	db := querytest.New(t, st, querytest.Options{Now: now, Query: func(c *query.Config) { c.MaxSeries = maxSeries }})
	querier, otlp := db.Querier, promstore.Appendable{Appender: db.Appender}
	fill(t, otlp)
	registry := prometheus.NewRegistry()
	c := api.Config{
		Queryable: promstore.New(promstore.Config{Querier: querier}), Exemplars: promstore.ExemplarQueryable{Source: querier},
		Metadata:    families.Reader{Store: st, Tables: db.Settings.Tables},
		Cardinality: querier, OTLP: otlp, Build: v1.PrometheusVersion{Version: "3.0.0"}, Logger: logger, Now: now,
		Registerer: registry, Gatherer: registry,
	}
	if change != nil {
		change(&c)
	}
	h, err := api.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func fill(t *testing.T, to storage.AppendableV2) {
	app := to.AppenderV2(t.Context())
	add := func(f func(i int) float64, labelPairs ...string) {
		ls := labels.FromStrings(labelPairs...)
		for i := range 241 {
			at := dataStart + int64(i)*15_000
			_, err := app.Append(0, ls, 0, at, f(i), nil, nil, annotations(ls.Get("__name__"), at))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	one := func(int) float64 { return 1 }
	add(one, "__name__", "up", "job", "api", "instance", "a:80")
	add(one, "__name__", "up", "job", "node", "instance", "b:80")
	add(func(i int) float64 { return float64(3 * i) }, "__name__", "http_requests_total", "job", "api", "instance", "a:80")
	add(one, "__name__", "target_info", "service.name", "shop")
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// beside is what comes with a sample: the metadata of some metrics, and an exemplar a minute of one.
func annotations(name string, at int64) storage.AOptions {
	switch name {
	case "up":
		return storage.AOptions{Metadata: metadata.Metadata{Type: model.MetricTypeGauge, Help: "Whether it is up."}}
	case "http_requests_total":
		opts := storage.AOptions{Metadata: metadata.Metadata{Type: model.MetricTypeCounter, Help: "Requests.",
			Unit: "requests"}}
		if at%60_000 == 0 {
			opts.Exemplars = []exemplar.Exemplar{{Labels: labels.FromStrings("trace_id", "abc"), Value: 1, Ts: at, HasTs: true}}
		}
		return opts
	}
	return storage.AOptions{}
}

func TestHandler_ComputesWithPrometheusEngine(t *testing.T) {
	h := newHandler(t, nil)
	form := url.Values{"query": {"sum(rate(http_requests_total[5m])) + on() count(up)"}, "time": {seconds(dataEnd)}}
	const want = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1795262400,"2.2"]}]}}`
	if got := do(h, "POST", "/api/v1/query", form.Encode()).Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Only what is listed is served, whatever the module's API has.
func TestHandler_ServesNothingElse(t *testing.T) {
	h := newHandler(t, func(c *api.Config) { c.OTLP = nil })
	for _, path := range []string{
		"", "read", "write", "otlp/v1/metrics", "admin", "admin/tsdb", "status/tsdb/blocks",
		"search/metric_names", "openapi.yaml", "scrape_pools/config", "targets/relabel_steps",
		"label//values", "label/a/b/values", "label/values", "nosuch", "query/../write",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "OPTIONS"} {
			if got := do(h, method, "/api/v1/"+path, ""); got.Code != http.StatusNotFound ||
				!strings.Contains(got.Body.String(), `"errorType":"not_found"`) {
				t.Errorf("%s %s: got %d %s", method, path, got.Code, got.Body)
			}
		}
	}
	if got := do(h, "PUT", "/api/v1/query", ""); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("PUT query: got %d", got.Code)
	}
	if got := do(h, "POST", "/api/v1/status/tsdb", ""); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST status/tsdb: got %d", got.Code)
	}
}

// waiting is a Querier whose Selects wait for the end of their context.
type waiting struct {
	failing
	running atomic.Int32
	began   chan struct{}
}

func (w *waiting) SelectWindows(
	ctx context.Context, _, _ int64, _ *query.Windows, _ []*labels.Matcher,
) (query.SeriesSet, error) {
	w.running.Add(1)
	w.began <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestHandler_BoundsQueriesAtATime(t *testing.T) {
	source := &waiting{began: make(chan struct{}, 10)}
	h := newHandler(t, func(c *api.Config) {
		c.Queryable, c.MaxConcurrency = promstore.New(promstore.Config{Querier: source}), 1
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequest("GET", "/api/v1/query?query=up", nil).WithContext(ctx)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-source.began
	got := do(h, "GET", "/api/v1/query?query=up&timeout=10ms", "")
	if got.Code != http.StatusServiceUnavailable ||
		!strings.Contains(got.Body.String(), `"errorType":"timeout","error":"query timed out in query queue"`) {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	if n := source.running.Load(); n != 1 {
		t.Errorf("%d queries ran", n)
	}
	cancel()
	<-done
}

func TestNew_RefusesBadLimits(t *testing.T) {
	registry := prometheus.NewRegistry()
	sound := api.Config{
		Queryable: promstore.New(promstore.Config{}), Gatherer: registry, Logger: slog.New(slog.DiscardHandler),
		Exemplars: promstore.ExemplarQueryable{}, Metadata: families.Reader{}, Cardinality: failing{},
	}
	for flag, spoil := range map[string]func(*api.Config){
		"--query.timeout":         func(c *api.Config) { c.Timeout = -1 },
		"--query.max-samples":     func(c *api.Config) { c.MaxSamples = -1 },
		"--query.lookback-delta":  func(c *api.Config) { c.LookbackDelta = 1 },
		"--query.max-concurrency": func(c *api.Config) { c.MaxConcurrency = 1 << 20 },
		"--query.max-query-bytes": func(c *api.Config) { c.MaxQueryBytes = -1 },
		"promql-per-step-stats":   func(c *api.Config) { c.Features = []string{"native-histogramms"} },
		"Queryable":               func(c *api.Config) { c.Queryable = nil },
		"Exemplars":               func(c *api.Config) { c.Exemplars = nil },
		"Metadata":                func(c *api.Config) { c.Metadata = nil },
	} {
		c := sound
		spoil(&c)
		if _, err := api.New(c); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

// otlpBody is an OTLP request with a gauge and, if asked, an exponential histogram.
func otlpBody(t *testing.T, withHistogram bool) []byte {
	metrics := pmetric.NewMetrics()
	resource := metrics.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	list := resource.ScopeMetrics().AppendEmpty().Metrics()
	gauge := list.AppendEmpty()
	gauge.SetName("queue.length")
	point := gauge.SetEmptyGauge().DataPoints().AppendEmpty()
	point.SetTimestamp(pcommon.NewTimestampFromTime(clock))
	point.SetDoubleValue(42)
	point.Attributes().PutStr("queue.name", "mail")
	if withHistogram {
		h := list.AppendEmpty()
		h.SetName("duration")
		h.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := h.ExponentialHistogram().DataPoints().AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(clock))
		p.SetCount(1)
		p.SetZeroCount(1)
	}
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func postOTLP(h http.Handler, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/api/v1/otlp/v1/metrics", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/x-protobuf")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOTLP_StoresMetrics(t *testing.T) {
	h := newHandler(t, nil)
	if got := postOTLP(h, otlpBody(t, true)); got.Code != http.StatusOK {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	const result = `{"status":"success","data":{"resultType":"vector","result":[%s]}}`
	for query, want := range map[string]string{
		"queue_length":              `{"metric":{"__name__":"queue_length","job":"shop","queue_name":"mail"},"value":[1795262400,"42"]}`,
		"histogram_count(duration)": `{"metric":{"job":"shop"},"value":[1795262400,"1"]}`,
	} {
		want = fmt.Sprintf(result, want)
		if got := do(h, "POST", "/api/v1/query", "query="+query+"&time="+seconds(dataEnd)).Body.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
	if got := do(h, "GET", "/api/v1/otlp/v1/metrics", ""); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d", got.Code)
	}
	if got := postOTLP(h, []byte("no protobuf")); got.Code != http.StatusBadRequest {
		t.Errorf("garbage: got %d", got.Code)
	}
}

// brokenAppendable is an AppendableV2 that cannot commit.
type brokenAppendable struct{ err error }

func (b brokenAppendable) AppenderV2(context.Context) storage.AppenderV2 { return b }
func (b brokenAppendable) Commit() error                                 { return b.err }
func (b brokenAppendable) Rollback() error                               { return nil }

func (b brokenAppendable) Append(storage.SeriesRef, labels.Labels, int64, int64, float64, *histogram.Histogram,
	*histogram.FloatHistogram, storage.AOptions) (storage.SeriesRef, error) {
	return 0, nil
}

// What was not committed is never answered with success.
// A request whose points become more labels and samples than are allowed is refused for good.
func TestOTLP_BoundsWhatPointsBecome(t *testing.T) {
	h := newHandler(t, func(c *api.Config) {
		otlp := c.OTLP.(promstore.Appendable)
		otlp.MaxBytes = 100
		c.OTLP = otlp
	})
	if got := postOTLP(h, otlpBody(t, true)); got.Code != http.StatusRequestEntityTooLarge ||
		!strings.Contains(got.Body.String(), "100 bytes") {
		t.Errorf("got %d %q, want 413", got.Code, got.Body)
	}
}

func TestOTLP_AnswersForAFailedCommit(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("write: %w", store.ErrUnavailable), http.StatusServiceUnavailable},
		{store.ErrClosed, http.StatusServiceUnavailable},
		{&promstore.RefusedError{}, http.StatusBadRequest},
		{fmt.Errorf("write: %w", store.ErrTooLarge), http.StatusRequestEntityTooLarge},
		{fmt.Errorf("write: %w", store.ErrInvalid), http.StatusBadRequest},
		{fmt.Errorf("write: %w", store.ErrNoTable), http.StatusServiceUnavailable},
		{fmt.Errorf("write: %w", store.ErrCorrupt), http.StatusServiceUnavailable},
		{io.ErrUnexpectedEOF, http.StatusServiceUnavailable},
		{nil, http.StatusOK},
	} {
		got := postOTLP(newHandler(t, func(config *api.Config) { config.OTLP = brokenAppendable{c.err} }), otlpBody(t, false))
		if got.Code != c.want || c.err != nil && !strings.Contains(got.Body.String(), c.err.Error()) {
			t.Errorf("%v: got %d %s, want %d", c.err, got.Code, got.Body, c.want)
		}
		if retry := got.Header().Get("Retry-After") != ""; retry != (c.want == http.StatusServiceUnavailable) {
			t.Errorf("%v: Retry-After is %v", c.err, retry)
		}
	}
}
