package stress_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// Many large queries at once, of all kinds, stay within their part of a memory limit; some are answered, others are
// told why not, small ones are answered meanwhile, and at the end nothing is held, though clients left.
func TestQueries_ShareTheirMemory(t *testing.T) {
	const limit = 512 << 20
	t.Setenv("GOMEMLIMIT", fmt.Sprint(limit))
	p := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	end := time.Now().UnixMilli()
	fillMemoryTest(t, p, end)
	all, _ := (&prompb.ReadRequest{Queries: []*prompb.Query{{
		StartTimestampMs: 0, EndTimestampMs: end, Matchers: []*prompb.LabelMatcher{{Name: "n", Type: prompb.LabelMatcher_RE,
			Value: ".+"}},
	}}}).Marshal()
	asks := []promtest.Request{
		{Path: "/api/v1/query?query=" + url.QueryEscape(`{n=~".+"}[100m]`)},
		{Path: "/api/v1/query?query=" + url.QueryEscape(`{n=~"0.+"}[100m]`)},
		{Path: "/api/v1/query_range?query=" + url.QueryEscape(`m*m`) + fmt.Sprintf("&start=%d&end=%d&step=1", end/1000-6000,
			end/1000)},
		{Path: "/api/v1/query?query=" + url.QueryEscape(`max_over_time(vector(1)[10d:1s])`)},
		{Path: "/api/v1/read", Body: all},
		{Path: "/api/v1/series?match[]=m"},
		{Path: "/api/v1/status/tsdb"},
		{Path: "/federate?match[]=m"},
	}
	if code, text, err := asks[0].Do(t.Context(), p.URL(), time.Minute); code != http.StatusUnprocessableEntity ||
		!strings.Contains(text, "--query.max-memory-bytes") {
		t.Errorf("a query that is too large for itself: got %d %.300s, %v", code, text, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg, watchers sync.WaitGroup
	var mu sync.Mutex
	codes, most := map[int]int{}, 0.0
	for i := range 20 {
		for _, a := range asks {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 2 {
					patience := time.Minute
					if random.IntN(4) == 0 {
						patience = time.Duration(random.IntN(1000)) * time.Millisecond // and then it leaves
					}
					code, text, err := a.Do(ctx, p.URL(), patience)
					if err != nil {
						continue
					}
					mu.Lock()
					codes[code]++
					mu.Unlock()
					named := strings.Contains(text, "--query.max-memory-bytes") ||
						strings.Contains(text, "--query.max-total-memory-bytes")
					if code != http.StatusOK && !named || code/100 == 5 && code != http.StatusServiceUnavailable {
						t.Errorf("%s: got %d %.300s", a.Path, code, text)
					}
				}
			})
		}
	}
	small := promtest.Request{Path: "/api/v1/query?query=" + url.QueryEscape(`m{n="0000"}`)}
	smalls, slowest := map[int]int{}, time.Duration(0)
	watchers.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			begin := time.Now()
			code, text, err := small.Do(ctx, p.URL(), time.Minute)
			if ctx.Err() != nil {
				return
			}
			slowest = max(slowest, time.Since(begin))
			if smalls[code]++; err != nil || code != http.StatusOK && code != http.StatusServiceUnavailable {
				t.Errorf("a small query: got %d %.300s, %v", code, text, err)
			}
		}
	})
	watchers.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if held, err := promtest.Metric(ctx, p.URL(), "promtsd_query_memory_bytes"); err == nil {
				most = max(most, held)
			}
		}
	})
	wg.Wait()
	cancel()
	watchers.Wait()
	peak := p.Usage().PeakRSS
	t.Logf("answers by code: %v, to small queries %v, in %v at most; %.0f MiB were held at most, the process had %d MiB",
		codes, smalls, slowest, most/(1<<20), peak>>20)
	// When very many begin at once, a small one may find for a second that all others are small as yet, too.
	if smalls[http.StatusServiceUnavailable] > smalls[http.StatusOK] {
		t.Errorf("answers to small queries by code: %v, want most answered", smalls)
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusServiceUnavailable] == 0 {
		t.Error("want some that are answered, and some that are refused")
	}
	if most > limit/4 {
		t.Errorf("%.0f bytes were held, the limit is %d", most, limit/4)
	}
	if peak > limit {
		t.Errorf("the process had %d bytes, the limit is %d", peak, limit)
	}
	promtest.Until(t, "all is given back", func(ctx context.Context) error {
		held, err := promtest.Metric(ctx, p.URL(), "promtsd_query_memory_bytes")
		if err == nil && held != 0 {
			err = fmt.Errorf("%.0f bytes are held", held)
		}
		return err
	})
}

// fillMemoryTest writes 1000 series of 2000 samples each, the last at end.
func fillMemoryTest(t *testing.T, p *promtest.Process, end int64) {
	t.Helper()
	const series, samples, atATime = 1000, 2000, 50
	random := rand.New(rand.NewPCG(1, 2))
	for first := 0; first < series; first += atATime {
		var body []remotetest.Series
		for n := first; n < first+atATime; n++ {
			s := remotetest.Series{Labels: []prompb.Label{
				{Name: "__name__", Value: "m"}, {Name: "n", Value: fmt.Sprintf("%04d", n)},
			}}
			for i := range int64(samples) {
				s.Samples = append(s.Samples, request.Sample{T: end - (samples-1-i)*3000, V: random.NormFloat64()})
			}
			body = append(body, s)
		}
		res, err := remotetest.Write(t.Context(), http.DefaultClient, p.URL(), remotetest.MessageV1, body)
		if err != nil || res.StatusCode/100 != 2 {
			t.Fatalf("write: %v, %v", res, err)
		}
	}
}
