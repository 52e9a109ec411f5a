package stress_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// Under a memory limit more series and samples are sent than fit. What does not fit is refused by its name, a sender
// that was there before goes on, the process stays at the limit, and does not spend its time on collecting garbage.
func TestMemoryLimit_RefusesWhatDoesNotFit(t *testing.T) {
	if testing.Short() {
		t.Skip("writes for a minute")
	}
	const (
		limit  = 900 << 20
		known  = 20_000
		flood  = 600_000
		each   = 2_000 // series of a request
		rounds = 3
	)
	t.Setenv("GOMEMLIMIT", fmt.Sprint(limit))
	p := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	var mu sync.Mutex
	refused := map[string]int{} // answers by what they name
	send := func(sender string, first, round int) {
		body := make([]remotetest.Series, each)
		for i := range body {
			body[i] = memoryLimitSeries(sender, first+i, round)
		}
		for {
			res, err := remotetest.Write(t.Context(), http.DefaultClient, p.URL(), remotetest.MessageV1, body)
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
			text, _ := io.ReadAll(res.Body)
			why := "nothing"
			for _, flag := range []string{
				"--write.max-active-series", "--write.max-new-names-per-second", "--write.max-buffered-bytes",
				"--write.max-in-flight-bytes",
			} {
				if strings.Contains(string(text), flag) {
					why = flag
				}
			}
			mu.Lock()
			refused[fmt.Sprint(res.StatusCode, " ", why)]++
			mu.Unlock()
			if res.StatusCode/100 != 2 && why == "nothing" {
				t.Errorf("%s: got %d %.300s, which names no limit", sender, res.StatusCode, text)
			}
			if sender == "known" && res.StatusCode/100 == 4 {
				t.Errorf("series that are active are refused: %d %.300s", res.StatusCode, text)
			}
			if res.StatusCode != http.StatusServiceUnavailable {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	begin := time.Now()
	for first := 0; first < known; first += each {
		send("known", first, 0)
	}
	for round := range rounds {
		requests := make(chan int)
		var senders sync.WaitGroup
		for range 4 {
			senders.Go(func() {
				for first := range requests {
					send("flood", first, round+1)
				}
			})
		}
		for first := 0; first < flood; first += each {
			requests <- first
			if first%(flood/10) == 0 {
				send("known", first/(flood/10)*each%known, round+1)
			}
		}
		close(requests)
		senders.Wait()
	}
	usage := p.Usage()
	garbage, err := promtest.Metric(t.Context(), p.URL(), "go_cpu_classes_gc_total_cpu_seconds_total")
	if err != nil {
		t.Fatal(err)
	}
	user, err := promtest.Metric(t.Context(), p.URL(), "go_cpu_classes_user_cpu_seconds_total")
	if err != nil {
		t.Fatal(err)
	}
	active, err := promtest.Metric(t.Context(), p.URL(), "promtsd_ingest_active_series")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("after %v: %v; %.0f series are active; the process had %d MiB, and took %v of CPU, %.0f %% of it for garbage",
		time.Since(begin).Round(time.Second), refused, active, usage.PeakRSS>>20, usage.CPU, 100*garbage/(garbage+user))
	if refused["400 --write.max-active-series"] == 0 || refused["204 nothing"] == 0 {
		t.Errorf("answers: %v; want some that are 204, and some that name the limit", refused)
	}
	// The collector counts neither Pebble's block cache and memtables, nor the program itself.
	if usage.PeakRSS > limit+limit/8 {
		t.Errorf("the process had %d MiB, the limit is %d", usage.PeakRSS>>20, limit>>20)
	}
	if garbage > user { // both in time of processors, whether the machine gave it or not
		t.Errorf("%.1f s were for garbage, and %.1f s for anything else", garbage, user)
	}
	promtest.Until(t, "series of both senders are found", func(ctx context.Context) error {
		for _, sender := range []string{"known", "flood"} {
			ask := promtest.Request{Path: `/api/v1/label/pod/values?limit=10&match[]=m1{sender="` + sender + `"}`}
			if code, text, err := ask.Do(ctx, p.URL(), time.Minute); err != nil || code != http.StatusOK {
				return fmt.Errorf("%s: %d %s, %v", sender, code, text, err)
			}
		}
		return nil
	})
}

// memoryLimitSeries is one of many series with ten labels, one of whose values few others have, and with two samples.
func memoryLimitSeries(sender string, i, round int) remotetest.Series {
	s := remotetest.Series{Labels: []prompb.Label{{Name: "__name__", Value: fmt.Sprint("m", i%50)}}}
	for _, l := range [][2]string{
		{"cluster", "production-eu-west-1"}, {"container", fmt.Sprint("container-", i%7)}, {"endpoint", "http-metrics"},
		{"instance", fmt.Sprintf("10.0.%d.%d:8080", i/50%250, i%250)}, {"job", fmt.Sprint("service-", i%40)},
		{"namespace", fmt.Sprint("team-", i%20)},
		{"pod", fmt.Sprintf("service-%d-7d9f8c6b5-%05d", i%40, i/50)}, {"sender", sender},
		{"service", fmt.Sprint("service-", i%40)},
	} {
		s.Labels = append(s.Labels, prompb.Label{Name: l[0], Value: l[1]})
	}
	at := time.Now().UnixMilli()
	for k := range int64(2) {
		s.Samples = append(s.Samples, request.Sample{T: at + k, V: rand.Float64()})
	}
	return s
}
