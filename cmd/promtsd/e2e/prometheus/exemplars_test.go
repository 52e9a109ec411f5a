package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// exemplarTarget is an application whose page has exemplars, with times of their own and without, and metadata.
func exemplarTarget(t *testing.T) *httptest.Server {
	var scrapes atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		fmt.Fprintf(w, `# HELP app_latency_seconds How long it "takes"; ключ.
# TYPE app_latency_seconds histogram
# UNIT app_latency_seconds seconds
app_latency_seconds_bucket{le="0.1"} %[1]d # {trace_id="a%[1]d",span_id="ü"} 0.05
app_latency_seconds_bucket{le="1.0"} %[1]d # {trace_id="b%[1]d"} 0.5 %.3[2]f
app_latency_seconds_bucket{le="+Inf"} %[1]d # {} %[1]d.5
app_latency_seconds_count %[1]d
app_latency_seconds_sum %[1]d
# HELP app_requests Requests.
# TYPE app_requests counter
app_requests_total{code="200"} %[1]d # {trace_id="c%[1]d"} 1
# HELP app_temperature_celsius How warm it is.
# TYPE app_temperature_celsius gauge
app_temperature_celsius 21.5
# EOF
`, n, float64(time.Now().Add(-time.Second).UnixMilli())/1000)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// data is what a server answers at a path of its API.
func data(ctx context.Context, server, path string, form url.Values) (out any, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/"+path+"?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status string
		Data   any
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("%s of %s: %s %.500s (%v)", path, server, res.Status, body, err)
	}
	return answer.Data, nil
}

func TestPrometheus_FindsExemplarsAndMetadata(t *testing.T) {
	for _, message := range []string{remotetest.MessageV1, remotetest.MessageV2} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			findsExemplarsAndMetadata(t, promtest.StartPromtsd(t, promtest.PromtsdConfig{}), message)
		})
	}
}

// findsExemplarsAndMetadata has a real Prometheus send what stands beside samples, kills promtsd, and compares what the
// two answer to the same questions.
func findsExemplarsAndMetadata(t *testing.T, promtsd *promtest.Process, message string) {
	prometheus := promtest.Start(t, promtest.Config{
		YAML: fmt.Sprintf(`
global:
  scrape_interval: 250ms
scrape_configs:
- job_name: app
  static_configs: [{targets: [%q]}]
remote_write:
- url: %s/api/v1/write
  protobuf_message: %s
  send_exemplars: true
  metadata_config: {send_interval: 500ms}
  queue_config: {batch_send_deadline: 200ms, min_backoff: 30ms, max_backoff: 300ms}
`, strings.TrimPrefix(exemplarTarget(t).URL, "http://"), promtsd.URL(), message),
		Args: []string{"--enable-feature=exemplar-storage"},
	})
	var start time.Time
	promtest.Until(t, "the target is scraped", func(ctx context.Context) error {
		start = time.Now()
		r, err := prometheus.Query(ctx, "app_requests_total > 1", start)
		if err == nil && r.Samples() == 0 {
			err = fmt.Errorf("not scraped")
		}
		return err
	})
	promtest.Sleep(t.Context(), 4*time.Second)
	end := time.Now().Add(-1500 * time.Millisecond) // an exemplar's time may be a second before its scrape
	samplesSentUntil(t, prometheus, end)
	promtsd.Kill()
	promtsd.Restart()

	for _, query := range []string{
		`app_requests_total`, `histogram_quantile(0.9, sum by (le) (rate(app_latency_seconds_bucket[1m])))`,
		`{job="app",le!="1.0"} + on () app_requests_total`, `app_temperature_celsius`, `nosuch`,
	} {
		form := url.Values{"query": {query}, "start": {promtest.Seconds(start)}, "end": {promtest.Seconds(end)}}
		want, err := data(t.Context(), prometheus.URL(), "query_exemplars", form)
		if err != nil {
			t.Fatal(err)
		}
		got, err := data(t.Context(), promtsd.URL(), "query_exemplars", form)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("exemplars of %s:\n got %v\nwant %v", query, got, want)
		}
		if n := len(want.([]any)); (n == 0) != (query == "nosuch" || query == "app_temperature_celsius") {
			t.Errorf("Prometheus has exemplars of %d series for %s", n, query)
		}
	}
	// In 2.0 a sender finds metadata in its write-ahead log. This Prometheus (3.15) writes none there: it does not hand
	// its feature flag metadata-wal-records to its database.
	if message == remotetest.MessageV1 {
		for _, form := range []url.Values{nil, {"metric": {"app_requests"}}, {"metric": {"nosuch"}}} {
			want, err := data(t.Context(), prometheus.URL(), "metadata", form)
			if err != nil {
				t.Fatal(err)
			}
			got, err := data(t.Context(), promtsd.URL(), "metadata", form)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("metadata %v:\n got %v, %v\nwant %v", form, got, err, want)
			}
			if n := len(want.(map[string]any)); n != map[string]int{"": 3, "app_requests": 1}[form.Get("metric")] {
				t.Errorf("Prometheus has metadata of %d families: %v", n, want)
			}
		}
	}
	for _, name := range []string{
		"prometheus_remote_storage_exemplars_failed_total", "prometheus_remote_storage_metadata_failed_total",
		"prometheus_remote_storage_samples_failed_total",
	} {
		if failed, err := promtest.Metric(t.Context(), prometheus.URL(), name); err != nil || failed != 0 {
			t.Errorf("%s is %v, %v", name, failed, err)
		}
	}
}
