// Package prometheus_test puts promtsd beside a real Prometheus, on the embedded store and on HBase: what Prometheus
// writes it reads back, and promtsd answers PromQL, exemplars, metadata and Grafana's calls as Prometheus does.
package prometheus_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// writingConfig is a Prometheus that scrapes itself, promtsd and a target of the test, and writes all to promtsd. Of
// itself it takes native histograms, and of the target histograms whose buckets become custom ones, which it sends in
// 2.0 only.
func writingConfig(promtsd *promtest.Process, target, message string) string {
	return fmt.Sprintf(`
global:
  scrape_interval: 250ms
  scrape_timeout: 250ms
scrape_configs:
- job_name: prometheus
  scrape_native_histograms: true
  always_scrape_classic_histograms: true
  static_configs: [{targets: [%q]}]
- job_name: promtsd
  static_configs: [{targets: [%q]}]
- job_name: odd
  convert_classic_histograms_to_nhcb: %t
  static_configs: [{targets: [%q]}]
remote_write:
- url: %s/api/v1/write
  protobuf_message: %s
  send_native_histograms: true
  queue_config: {batch_send_deadline: 200ms, min_backoff: 30ms, max_backoff: 300ms}
`, promtest.Self, promtsd.Addr(), message == remotetest.MessageV2, strings.TrimPrefix(target, "http://"),
		promtsd.URL(), message)
}

// readingConfig is a Prometheus that has nothing but what promtsd gives it.
func readingConfig(promtsd *promtest.Process) string {
	return fmt.Sprintf("remote_read:\n- url: %s/api/v1/read\n  read_recent: true\n", promtsd.URL())
}

// oddTarget exposes values and names that are easily lost: special floats, UTF-8, and a series that comes and goes so
// that staleness markers are written.
func oddTarget(t *testing.T) *httptest.Server {
	var scrapes atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		w.Header().Set("Content-Type", "text/plain; version=1.0.0; escaping=allow-utf-8")
		fmt.Fprintf(w, "odd_value{kind=\"nan\"} NaN\nodd_value{kind=\"inf\"} +Inf\nodd_value{kind=\"-inf\"} -Inf\n")
		// No -0: Prometheus's own encoder loses its sign before promtsd sees it. TestRoundTrip has it.
		fmt.Fprintf(w, "odd_value{kind=\"tiny\"} 5e-324\nodd_value{kind=\"big\"} 1.7976931348623157e308\n")
		fmt.Fprintf(w, "odd_value{kind=\"third\"} %v\nodd_value{kind=\"count\"} %d\n", float64(n)/3, n)
		fmt.Fprintf(w, "{\"odd.utf8 métrique\",\"ключ.x\"=\"значение \\\"q\\\" \\n 指标 😀\"} %d\n", n*n)
		fmt.Fprintf(w, "odd_bare %d\n", n)
		fmt.Fprintf(w, "# TYPE odd_custom histogram\nodd_custom_bucket{le=\"0.3\"} %d\nodd_custom_bucket{le=\"+Inf\"} %d\n",
			n%20, n%20*3)
		fmt.Fprintf(w, "odd_custom_sum %v\nodd_custom_count %d\n", float64(n)/3, n%20*3)
		if n/4%2 == 0 {
			fmt.Fprintf(w, "odd_comes_and_goes{n=\"1\"} %d\n", n)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

// samplesSentUntil waits until Prometheus has sent to its remote all samples scraped before at.
func samplesSentUntil(t *testing.T, s *promtest.Server, at time.Time) {
	t.Helper()
	promtest.Until(t, "remote write has caught up", func(ctx context.Context) error {
		sent, err := promtest.Metric(ctx, s.URL(), "prometheus_remote_storage_queue_highest_sent_timestamp_seconds")
		if err != nil {
			return err
		}
		pending, err := promtest.Metric(ctx, s.URL(), "prometheus_remote_storage_samples_pending")
		if err != nil {
			return err
		}
		// Shards send side by side, so an older sample may be behind the newest: a second is more than a batch's deadline.
		if sent < float64(at.UnixMilli())/1000+1 || pending > 5000 {
			return fmt.Errorf("sent up to %v, %v samples pending", sent, pending)
		}
		return nil
	})
}

// everything is what the two servers are asked: instant vectors, range vectors, all matcher types, functions, offsets,
// with a metric name, a pattern of one, and none.
func everything(start, end time.Time) promtest.Queries {
	mid := start.Add(end.Sub(start) / 2)
	return promtest.Queries{
		Exprs: []string{
			`up`, `odd_value`, `odd_bare`, `{"odd.utf8 métrique"}`, `odd_comes_and_goes`,
			`{job="odd"}`, `{__name__=~"odd_.*",kind!=""}`, `{__name__=~"odd_.*|up",kind=""}`, `odd_value{kind=~"n.*|.*inf"}`,
			`odd_value{kind!~".*inf|nan"}`, `{__name__!="up",job="odd"}`, `up{nosuch=""}`, `up{job=~".*"}`,
			`rate(prometheus_http_requests_total[3s])`, `sum by (job) (scrape_samples_scraped)`,
			`max_over_time(go_goroutines[5s])`,
			`histogram_quantile(0.9, rate(prometheus_http_request_duration_seconds_bucket[4s]))`,
			`count by (job) ({__name__=~".+"})`, `promtsd_ingest_samples_total offset 2s`, `absent(odd_comes_and_goes)`,
			`prometheus_http_request_duration_seconds`,
			`histogram_quantile(0.9, sum(rate(prometheus_http_request_duration_seconds[4s])))`,
			`count_over_time(odd_value[4s])`, `last_over_time(odd_value[2s])`,
		},
		At: []time.Time{start, mid, end},
		Ranges: []promtest.Range{{Start: start, End: end, Step: 250 * time.Millisecond},
			{Start: start, End: end, Step: 3 * time.Second}},
	}
}

// rawSamples asks for the samples themselves.
func rawSamples(start, end time.Time) promtest.Queries {
	window := fmt.Sprintf("[%dms]", end.Sub(start).Milliseconds())
	return promtest.Queries{
		Exprs: []string{`{job="odd"}` + window, `{job=~"prom.*"}` + window, `up` + window, `{__name__=~".+"}` + window},
		At:    []time.Time{end},
	}
}

const recorded = 15 * time.Second

func TestPrometheus_ReadsBackWhatItWrote(t *testing.T) {
	for _, message := range []string{remotetest.MessageV1, remotetest.MessageV2} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			readsBackWhatItWrote(t, promtest.StartPromtsd(t, promtest.PromtsdConfig{}), message)
		})
	}
}

// readsBackWhatItWrote has one Prometheus write to promtsd, and compares what it answers with what another one answers,
// which has nothing but promtsd. At the end promtsd is stopped.
func readsBackWhatItWrote(t *testing.T, promtsd *promtest.Process, message string) {
	writer := promtest.Start(t, promtest.Config{YAML: writingConfig(promtsd, oddTarget(t).URL, message)})
	start := scraped(t, writer)
	promtest.Sleep(t.Context(), recorded)
	end := time.Now().Add(-time.Second)
	samplesSentUntil(t, writer, end)

	failed, err := promtest.Metric(t.Context(), writer.URL(), "prometheus_remote_storage_samples_failed_total")
	if err != nil || failed != 0 {
		t.Errorf("samples that promtsd refused: %v, %v", failed, err)
	}
	reader := promtest.Start(t, promtest.Config{YAML: readingConfig(promtsd)})
	promtest.AssertSame(t, writer, reader, rawSamples(start, end))
	queries := everything(start, end)
	if message == remotetest.MessageV2 {
		queries.Exprs = append(queries.Exprs, `odd_custom`, `histogram_quantile(0.9, rate(odd_custom[4s]))`,
			`resets(odd_custom[8s])`)
	}
	promtest.AssertSame(t, writer, reader, queries)
	writer.Stop()
	promtsd.Stop() // and its status is 0
}

func TestPrometheus_LosesNothingByKillOfPromtsd(t *testing.T) {
	t.Parallel()
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	writer := promtest.Start(t, promtest.Config{YAML: writingConfig(promtsd, oddTarget(t).URL, remotetest.MessageV2)})
	start := scraped(t, writer)
	for range 4 {
		promtest.Sleep(t.Context(), 2*time.Second)
		promtsd.Kill()
		promtest.Sleep(t.Context(), 500*time.Millisecond)
		promtsd.Restart()
	}
	promtest.Sleep(t.Context(), 2*time.Second)
	end := time.Now().Add(-time.Second)
	samplesSentUntil(t, writer, end)
	reader := promtest.Start(t, promtest.Config{YAML: readingConfig(promtsd)})
	promtest.AssertSame(t, writer, reader, rawSamples(start, end))
}

// scraped waits for the first samples and returns a time from which on there are some.
func scraped(t *testing.T, s *promtest.Server) time.Time {
	t.Helper()
	var at time.Time
	promtest.Until(t, "all targets are scraped", func(ctx context.Context) error {
		at = time.Now()
		r, err := s.Query(ctx, "count(up == 1) == 3", at)
		if err == nil && r.Samples() == 0 {
			err = fmt.Errorf("not all three are up")
		}
		return err
	})
	return at
}
