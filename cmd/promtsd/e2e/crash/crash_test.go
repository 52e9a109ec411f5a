// Package crash_test kills promtsd, stops it and fills its disk under load. Whatever was acknowledged is read back.
package crash_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

const (
	loadWriters    = 4
	requestPoints  = 5  // samples of a request
	seriesPoints   = 50 // samples of a series, after which a writer takes a new one
	loadIntervalMs = 7
)

// load is a crowd of senders. Each sends its samples 0, 1, 2... as fast as they are answered, and notes which requests
// were acknowledged; it sends none of them again.
type load struct {
	urls  []string // senders take them in turn, and stay with one
	start int64    // time of sample 0
	acks  chan struct{}

	mu       sync.Mutex // guards what follows
	requests [loadWriters]int
	acked    [loadWriters]map[int]bool // by request
	refused  map[int]int               // answers other than 2xx, by status
}

// sample is a sender's sample: a value of any bits that tells which one it is, and the labels of its series.
func (l *load) sample(writer, n int) (request.Sample, []prompb.Label) {
	random := rand.New(rand.NewPCG(uint64(writer), uint64(n)))
	return request.Sample{T: l.start + int64(n)*loadIntervalMs, V: math.Float64frombits(random.Uint64())}, []prompb.Label{
		{Name: "__name__", Value: "load"},
		{Name: "part", Value: strconv.Itoa(n / seriesPoints)},
		{Name: "writer", Value: strconv.Itoa(writer)},
	}
}

// startLoad starts the senders; the returned function stops them and waits for them.
func startLoad(t *testing.T, urls ...string) (*load, func()) {
	l := &load{
		urls: urls, start: time.Now().Add(-3 * time.Hour).UnixMilli(), acks: make(chan struct{}), refused: map[int]int{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range loadWriters {
		l.acked[w] = map[int]bool{}
		writers.Go(func() { l.write(ctx, w) })
	}
	stop := func() {
		cancel()
		writers.Wait()
	}
	t.Cleanup(stop)
	return l, stop
}

func (l *load) write(ctx context.Context, writer int) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for number := 0; ctx.Err() == nil; number++ {
		var series []remotetest.Series
		for n := number * requestPoints; n < (number+1)*requestPoints; n++ {
			p, labels := l.sample(writer, n)
			series = append(series, remotetest.Series{Labels: labels, Samples: []request.Sample{p}})
		}
		message := []string{remotetest.MessageV1, remotetest.MessageV2}[number%2]
		l.mu.Lock()
		l.requests[writer] = number + 1
		l.mu.Unlock()
		res, err := remotetest.Write(ctx, client, l.urls[writer%len(l.urls)], message, series)
		switch {
		case err != nil:
			// Nobody is there, for a while.
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		case res.StatusCode/100 == 2:
			l.mu.Lock()
			l.acked[writer][number] = true
			l.mu.Unlock()
			select {
			case <-ctx.Done():
			case l.acks <- struct{}{}:
			}
		default:
			l.mu.Lock()
			l.refused[res.StatusCode]++
			l.mu.Unlock()
		}
	}
}

// await lets n requests be acknowledged.
func (l *load) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for i := range n {
		select {
		case <-l.acks:
		case <-deadline:
			t.Fatalf("%d of %d requests were acknowledged in a minute", i, n)
		}
	}
}

// during takes acknowledgements until f returns, so that the senders go on.
func (l *load) during(f func()) {
	done := make(chan struct{})
	var taker sync.WaitGroup
	taker.Go(func() {
		for {
			select {
			case <-l.acks:
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	taker.Wait()
}

// check reads everything back: each acknowledged sample must be there, none twice, and none that was never sent.
func (l *load) check(t *testing.T, url string) {
	t.Helper()
	queries := []*prompb.Query{{
		StartTimestampMs: l.start - 1, EndTimestampMs: time.Now().Add(time.Hour).UnixMilli(),
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "load"}},
	}}
	for _, form := range remotetest.ResponseTypes {
		answer, err := remotetest.Read(t.Context(), http.DefaultClient, url, form, queries)
		if err != nil {
			t.Fatalf("read in form %v: %v", form, err)
		}
		var there [loadWriters]map[int]bool
		for w := range there {
			there[w] = map[int]bool{}
		}
		samples, problems := 0, 0
		problem := func(format string, args ...any) {
			if problems++; problems <= 10 {
				t.Errorf(fmt.Sprintf("form %v: ", form)+format, args...)
			}
		}
		for _, s := range answer[0] {
			writer, err := strconv.Atoi(s.Labels.Get("writer"))
			if err != nil || writer < 0 || writer >= loadWriters {
				t.Fatalf("a series that was not written: %s", s.Labels)
			}
			for _, p := range s.Samples {
				samples++
				n := int((p.T - l.start) / loadIntervalMs)
				want, labels := l.sample(writer, n)
				switch {
				case want.T != p.T || n >= l.requests[writer]*requestPoints ||
					remotetest.SortedLabels(labels).String() != s.Labels.String():
					problem("series %s has a sample at %d that was not sent", s.Labels, p.T)
				case math.Float64bits(want.V) != math.Float64bits(p.V):
					problem("sample %d of writer %d is %016x, want %016x", n, writer, math.Float64bits(p.V), math.Float64bits(want.V))
				case there[writer][n]:
					problem("sample %d of writer %d is there twice", n, writer)
				}
				there[writer][n] = true
			}
		}
		acked := 0
		for w, requests := range l.acked {
			for number := range requests {
				for n := number * requestPoints; n < (number+1)*requestPoints; n++ {
					acked++
					if !there[w][n] {
						problem("sample %d of writer %d was acknowledged and is lost", n, w)
					}
				}
			}
		}
		t.Logf("form %v: %d samples acknowledged, %d found in %d series", form, acked, samples, len(answer[0]))
		if problems > 10 {
			t.Errorf("form %v: %d problems in all", form, problems)
		}
	}
}

// TestCrash_NoAcknowledgedSampleIsLost kills promtsd again and again while samples of new and of known series arrive.
func TestCrash_NoAcknowledgedSampleIsLost(t *testing.T) {
	t.Parallel()
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	l, stop := startLoad(t, promtsd.URL())
	for range 10 {
		l.await(t, 1+rand.IntN(100))
		l.during(func() {
			promtsd.Kill()
			promtsd.Restart()
		})
	}
	l.await(t, 20)
	l.during(stop)
	delete(l.refused, http.StatusServiceUnavailable) // before a restarted promtsd is ready
	if len(l.refused) > 0 {
		t.Errorf("answers other than 2xx, by status: %v", l.refused)
	}
	l.check(t, promtsd.URL())
	promtsd.Kill()
	promtsd.Restart()
	l.check(t, promtsd.URL())
}

// TestDrain_FinishesWhatItAccepted ends promtsd by SIGTERM in mid-load.
func TestDrain_FinishesWhatItAccepted(t *testing.T) {
	t.Parallel()
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	l, stop := startLoad(t, promtsd.URL())
	for range 3 {
		l.await(t, 1+rand.IntN(100))
		l.during(func() {
			promtsd.Stop() // and its status is 0
			if res, err := http.Get(promtsd.URL() + "/-/ready"); err == nil {
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				t.Errorf("after its end promtsd answers %s: %s", res.Status, text)
			}
			promtsd.Restart()
		})
	}
	l.await(t, 20)
	l.during(stop)
	for status, n := range l.refused {
		if status != http.StatusServiceUnavailable {
			t.Errorf("%d answers have the status %d, want only 503 besides 2xx", n, status)
		}
	}
	l.check(t, promtsd.URL())
}
