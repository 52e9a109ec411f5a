package bench_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

var (
	activeSeries = flag.Int("active.series", 1_000_000, "active series of BenchmarkActiveSeries, a multiple of 2000")
	activeFor    = flag.Duration("active.for", 9*time.Minute, "how long BenchmarkActiveSeries goes on")
)

// activeRequests is how many requests of a dashboard are under way at a time: as many as a browser has connections.
const activeRequests = 6

// BenchmarkActiveSeries is a working day in small: series that are each written every 15 s, as evenly as a Prometheus
// does it, while somebody browses labels and somebody looks at a dashboard of 20 panels that loads itself every 30 s.
// After a third of the time promtsd is stopped and started, after two thirds it is killed and started. At the end it is
// killed once more, and each sample of one of the 50 metrics is read back.
//
//	go test ./cmd/promtsd -run '^$' -bench ActiveSeries -benchtime 1x -timeout 1h -active.for=9m
func BenchmarkActiveSeries(b *testing.B) {
	for range b.N {
		load := newBenchLoad(b, remotetest.MessageV2, *activeSeries, 0)
		load.start = time.Now().UnixMilli()
		a := &activeRun{b: b, load: load, began: time.Now(), answers: map[string]*answerTimes{}}
		a.run()
	}
}

// activeRun is a promtsd with writers and readers.
type activeRun struct {
	b       *testing.B
	load    benchLoad
	p       *promtest.Process
	began   time.Time
	down    atomic.Bool // promtsd is being started: readers' errors count nothing
	scrapes atomic.Int64

	mu      sync.Mutex
	answers map[string]*answerTimes
}

// answerTimes are those of one kind of request.
type answerTimes struct {
	times  []time.Duration
	failed int
	error  error
}

func (a *activeRun) run() {
	a.p = promtest.StartPromtsd(a.b, promtest.PromtsdConfig{Args: promtest.FlagsFromEnv()})
	ctx, cancel := context.WithCancel(a.b.Context())
	defer cancel()
	var writers, readers sync.WaitGroup
	for n := range benchConnections {
		writers.Go(func() { a.write(n) })
	}
	for _, read := range []func(context.Context){a.browse, a.look} {
		readers.Go(func() { read(ctx) })
	}

	a.phase("first")
	began := time.Now()
	a.down.Store(true)
	a.p.StopMeasured(benchPatience)
	stopped := time.Since(began)
	a.restart("after SIGTERM", stopped)
	a.phase("second")
	a.down.Store(true)
	a.p.Kill()
	a.restart("after a kill", 0)
	a.phase("third")
	writers.Wait()
	cancel()
	readers.Wait()
	a.p.Kill()
	a.restart("at the end", 0)
	a.load.scrapes = int(a.scrapes.Load())
	a.load.check(a.b, a.p.URL())
	a.p.StopMeasured(benchPatience)
	a.report()
}

// phase lets a third of the time go by and says what it cost.
func (a *activeRun) phase(name string) {
	before, began := a.p.Usage(), time.Now()
	time.Sleep(*activeFor / 3)
	after := a.p.Usage()
	held, err := promtest.Metric(a.b.Context(), a.p.URL(), "promtsd_ingest_buffered_bytes")
	a.b.Logf("%s third: %.2f cores, at most %d MiB, %.0f MiB of samples wait to be stored %v", name,
		(after.CPU-before.CPU).Seconds()/time.Since(began).Seconds(), after.PeakRSS>>20, held/(1<<20), err)
}

func (a *activeRun) restart(when string, stopped time.Duration) {
	began := time.Now()
	a.p.Restart()
	ready, cost := time.Since(began), a.p.Usage()
	a.down.Store(false)
	a.b.Logf("%s: %.1f s to end, %.1f s until ready again; that took %.1f CPU s and %d MiB at most", when,
		stopped.Seconds(),
		ready.Seconds(), cost.CPU.Seconds(), cost.PeakRSS>>20)
}

// write posts every benchConnections-th request from n on when it is due, and repeats it until it is taken.
func (a *activeRun) write(n int) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var groups []*benchBodies
	for first := n * requestSamples; first < a.load.series; first += benchConnections * requestSamples {
		groups = append(groups, newBenchBodies(a.load.message, a.load.values, first, a.load.start))
	}
	const interval = scrapeMs * time.Millisecond
	for scrape := 0; time.Duration(scrape)*interval < *activeFor; scrape++ {
		for i, g := range groups {
			due := a.began.Add(interval * time.Duration(scrape)).Add(interval * time.Duration(i) / time.Duration(len(groups)))
			time.Sleep(time.Until(due))
			body, err := g.next()
			var network *url.Error
			for again := true; again && err == nil; {
				began := time.Now()
				_, err = a.load.post(a.b.Context(), client, a.p.URL(), body)
				if again = errors.As(err, &network); again {
					time.Sleep(200 * time.Millisecond)
					err = nil
					continue
				}
				a.answered("write", time.Since(began), err)
			}
			if err != nil {
				a.b.Errorf("write: %v", err)
				return
			}
			a.answered("write, from the time it was due", time.Since(due), nil)
		}
		a.scrapes.Store(int64(scrape) + 1)
	}
}

// browse asks, again and again, what one asks who looks for a series.
func (a *activeRun) browse(ctx context.Context) {
	paths := []string{
		"/api/v1/labels", "/api/v1/label/__name__/values", "/api/v1/label/job/values", "/api/v1/label/pod/values",
		"/api/v1/label/pod/values?limit=100", "/api/v1/labels?match[]=http_server_requests_total",
		"/api/v1/label/instance/values?match[]=" + url.QueryEscape(`http_server_requests_total{job="service-07"}`),
		"/api/v1/series?match[]=" + url.QueryEscape(`http_server_requests_total{namespace="team-3"}`),
		"/api/v1/status/tsdb", "/api/v1/metadata",
	}
	for n := 0; ctx.Err() == nil; n++ {
		path := paths[n%len(paths)]
		since := time.Now().Add(-time.Hour).Unix()
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		a.ask(ctx, path, fmt.Sprintf("%s%sstart=%d", path, separator, since))
		promtest.Sleep(ctx, 2*time.Second)
	}
}

// look loads a dashboard every 30 s: its panels show an hour, of all series of a metric, or of a part of them.
func (a *activeRun) look(ctx context.Context) {
	panels := []string{
		`sum(rate(http_server_requests_total[5m]))`, `sum by (job) (rate(grpc_client_handled_total[5m]))`,
		`topk(5, sum by (pod) (rate(http_server_requests_errors_total[5m])))`, `sum by (namespace) (go_memstats_heap_bytes)`,
	}
	for i, metric := range []string{"process_cpu_total", "jvm_gc_pause_count", "kafka_consumer_fetch_bytes",
		"queue_depth_count"} {
		for _, part := range []string{`namespace="team-%d"`, `job="service-0%d"`, `pod=~"service-1%d-.*"`,
			`instance=~"10.3.7%d.*"`} {
			panels = append(panels, fmt.Sprintf(`sum by (pod) (rate(%s{%s}[5m]))`, metric, fmt.Sprintf(part, i+1)))
		}
	}
	for next := time.Now(); ctx.Err() == nil; next = next.Add(30 * time.Second) {
		promtest.Sleep(ctx, time.Until(next))
		began, turns := time.Now(), make(chan struct{}, activeRequests)
		var all sync.WaitGroup
		for _, expr := range panels {
			turns <- struct{}{}
			all.Go(func() {
				a.ask(ctx, expr, fmt.Sprintf("/api/v1/query_range?query=%s&start=%d&end=%d&step=15", url.QueryEscape(expr),
					began.Add(-time.Hour).Unix(), began.Unix()))
				<-turns
			})
		}
		all.Wait()
		a.answered(fmt.Sprintf("a dashboard of %d panels", len(panels)), time.Since(began), ctx.Err())
	}
}

func (a *activeRun) ask(ctx context.Context, kind, path string) {
	began := time.Now()
	code, text, err := promtest.Request{Path: path}.Do(ctx, a.p.URL(), time.Minute)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d %.300s", code, text)
	}
	if ctx.Err() == nil && !(err != nil && a.down.Load()) {
		a.answered(kind, time.Since(began), err)
	}
}

func (a *activeRun) answered(kind string, after time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.answers[kind]
	if t == nil {
		t = new(answerTimes)
		a.answers[kind] = t
	}
	if err != nil {
		t.failed, t.error = t.failed+1, err
		return
	}
	t.times = append(t.times, after)
}

func (a *activeRun) report() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lines []string
	for kind, t := range a.answers {
		slices.Sort(t.times)
		at := func(percent int) time.Duration {
			if len(t.times) == 0 {
				return 0
			}
			return t.times[(len(t.times)-1)*percent/100]
		}
		line := fmt.Sprintf("%8.3f s %8.3f s %8.3f s %7d  %s", at(50).Seconds(), at(99).Seconds(), at(100).Seconds(),
			len(t.times), kind)
		if t.failed > 0 {
			line += fmt.Sprintf(" (%d failed: %v)", t.failed, t.error)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	// b.Log would show ten lines
	fmt.Printf("answers: median, 99th percentile, slowest, number\n%s\n", strings.Join(lines, "\n"))
	use, err := promtest.DiskUse(a.p.Dir(), receivers()[0].part)
	samples := float64(a.load.samples())
	a.b.Logf("%.0f samples; B/sample on the disk: log %.2f, data %.2f, other %.2f; %v", samples,
		float64(use["log"])/samples,
		float64(use["data"])/samples, float64(use["other"])/samples, err)
	a.b.ReportMetric(0, "ns/op")
}
