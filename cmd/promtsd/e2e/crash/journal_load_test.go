package crash_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

const stormSenders = 4

// stormSpans are how far back the times of the senders' samples go: some are of the last minutes, whose rows stay open,
// some of hours that are over.
var stormSpans = [stormSenders]time.Duration{10 * time.Minute, 20 * time.Minute, 2 * time.Hour, 5 * time.Hour}

// storm is a crowd of senders that note what was sent and what was acknowledged. Between two calls of rage nothing is
// under way, and the senders' series may be looked at.
type storm struct {
	url     string
	era     int
	senders [stormSenders]*stormSender
}

// stormSender has series of its own, and one request under way at a time: so it knows which of its writes came last.
type stormSender struct {
	*storm
	id      int
	start   int64 // no sample is before
	clock   int64
	series  []*stormSeries
	history [][]stormWrite
	made    int // series

	requests, acked int
}

type stormSeries struct {
	era     int
	labels  []prompb.Label
	samples map[int64]*fate // by time
}

// fate is what may be found at one time of a series.
type fate struct {
	acked bool
	bits  uint64   // acknowledged last
	maybe []uint64 // sent since then, with no answer or a refusal
}

// stormWrite is one series of a request.
type stormWrite struct {
	series  *stormSeries
	samples []request.Sample // of different times
}

func newStorm(url string) *storm {
	s := &storm{url: url}
	now := time.Now()
	for id, span := range stormSpans {
		start := now.Add(-span).UnixMilli()
		s.senders[id] = &stormSender{storm: s, id: id, start: start, clock: start}
	}
	return s
}

// begin begins an era: the senders take new series, and keep those of the era before to repeat requests of it. Older
// ones are forgotten.
func (s *storm) begin() {
	s.era++
	for _, sender := range s.senders {
		old := func(series *stormSeries) bool { return series.era < s.era-1 }
		sender.series = slices.DeleteFunc(sender.series, old)
		sender.history = slices.DeleteFunc(sender.history, func(request []stormWrite) bool {
			return slices.ContainsFunc(request, func(w stormWrite) bool { return old(w.series) })
		})
	}
}

// rage starts the senders; the returned function lets each finish its last request. promtsd has to be there by then.
func (s *storm) rage(t *testing.T) (stop func()) {
	var enough atomic.Bool
	var senders sync.WaitGroup
	for _, sender := range s.senders {
		senders.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for !enough.Load() && t.Context().Err() == nil {
				if err := sender.send(t.Context(), client); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stop = func() {
		enough.Store(true)
		senders.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// send makes a request or repeats one, posts it, and notes what became of it. That nobody answers is no error.
func (s *stormSender) send(ctx context.Context, client *http.Client) error {
	s.requests++
	var request []stormWrite
	if n := len(s.history); n > 0 && rand.IntN(8) == 0 {
		request = s.history[rand.IntN(n)]
	} else {
		request = s.request()
		s.remember(request)
	}
	var series []remotetest.Series
	for _, w := range request {
		series = append(series, remotetest.Series{Labels: w.series.labels, Samples: w.samples})
		for _, p := range w.samples {
			w.series.at(p.T).attempt(math.Float64bits(p.V))
		}
	}
	message := []string{remotetest.MessageV1, remotetest.MessageV2}[rand.IntN(2)]
	res, err := remotetest.Write(ctx, client, s.url, message, series)
	switch {
	case err != nil || res.StatusCode == http.StatusServiceUnavailable:
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
		return nil
	case res.StatusCode/100 != 2:
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("sender %d got %s: %s", s.id, res.Status, text)
	}
	s.acked++
	for _, w := range request {
		for _, p := range w.samples {
			*w.series.at(p.T) = fate{acked: true, bits: math.Float64bits(p.V)}
		}
	}
	return nil
}

// remember keeps some requests to be repeated, old ones and new ones.
func (s *stormSender) remember(request []stormWrite) {
	if len(s.history) < 64 {
		s.history = append(s.history, request)
	} else {
		s.history[rand.IntN(len(s.history))] = request
	}
}

// request is up to eight series of up to six samples each, now and then of hundreds.
func (s *stormSender) request() []stormWrite {
	most := 6
	if rand.IntN(8) == 0 {
		most = 300
	}
	picked := map[*stormSeries]bool{}
	for range 1 + rand.IntN(8) {
		picked[s.pick()] = true
	}
	var writes []stormWrite
	for series := range picked {
		times := map[int64]bool{}
		for range 1 + rand.IntN(most) {
			times[s.time(series)] = true
		}
		w := stormWrite{series: series}
		for t := range times {
			w.samples = append(w.samples, request.Sample{T: t, V: stormValue()})
		}
		writes = append(writes, w)
	}
	return writes
}

// pick is a series of this era: one of the last few, or now and then a new one.
func (s *stormSender) pick() *stormSeries {
	const alive = 12
	n := len(s.series)
	if n == 0 || s.series[n-1].era != s.era || rand.IntN(100) == 0 {
		s.made++
		s.series = append(s.series, &stormSeries{
			era: s.era,
			labels: []prompb.Label{
				{Name: "__name__", Value: fmt.Sprintf("storm_%d", s.made%3)},
				{Name: "era", Value: strconv.Itoa(s.era)},
				{Name: "job", Value: "storm"},
				{Name: "n", Value: strconv.Itoa(s.made)},
				{Name: "sender", Value: strconv.Itoa(s.id)},
			},
			samples: map[int64]*fate{},
		})
		return s.series[n]
	}
	first := max(n-alive, 0)
	for s.series[first].era != s.era {
		first++
	}
	return s.series[first+rand.IntN(n-first)]
}

// time is that of a sample: mostly ahead of all before, until now and then from the start again; else anywhere before,
// or where the series has a sample already.
func (s *stormSender) time(series *stormSeries) int64 {
	switch rand.IntN(20) {
	case 0:
		for t := range series.samples { // any
			return t
		}
	case 1, 2, 3:
		return s.start + rand.Int64N(s.clock-s.start+1)
	}
	now := time.Now().UnixMilli()
	if s.clock += rand.Int64N((now - s.start) / 2000); s.clock > now {
		s.clock = s.start
	}
	return s.clock
}

// stormValue is one of every kind that is stored in its own way.
func stormValue() float64 {
	switch rand.IntN(8) {
	case 0:
		return float64(rand.IntN(512) - 256)
	case 1:
		return float64(rand.Int64N(1 << 53))
	case 2:
		return float64(rand.Float32())
	case 3:
		return float64(rand.IntN(100_000)) / 100
	case 4:
		return math.Copysign(0, -1)
	case 5:
		return math.Float64frombits(0x7ff0000000000002) // a staleness marker
	default:
		return math.Float64frombits(rand.Uint64())
	}
}

func (s *stormSeries) at(t int64) *fate {
	if s.samples[t] == nil {
		s.samples[t] = new(fate)
	}
	return s.samples[t]
}

func (f *fate) attempt(bits uint64) {
	if !slices.Contains(f.maybe, bits) {
		f.maybe = append(f.maybe, bits)
	}
}
