package stress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

const (
	stressSenders = 4
	stressSeries  = 25_000 // of each sender
	stressBatch   = 500    // of a request
	stressPace    = 400 * time.Millisecond
	stressStep    = 15_000 // between samples of a series, in milliseconds
)

// stressHonest are those who have a right to be served: senders of series that are known, readers with
// small questions, and a supervisor who asks whether promtsd is well.
type stressHonest struct {
	*stress
	client  *http.Client
	start   int64 // of the first samples
	senders []*stressSender
	enough  atomic.Bool

	mu    sync.Mutex // guards what follows
	times map[string]*stressTimes
	last  map[string]stressLast // by who asks
}

// stressLast is the last request of one of the honest.
type stressLast struct {
	began time.Time
	took  time.Duration
}

// stressTimes is what the requests of one kind met.
type stressTimes struct {
	limit   time.Duration
	n       int
	late    []time.Duration // those that took longer than the limit
	refused int             // 503, or a connection that was closed; these are sent again
	slowest time.Duration   // until the request is served at last
	why     string          // of the slowest: what it met last
}

type stressFigures map[string]stressTimes

func newStressHonest(x *stress) *stressHonest {
	h := &stressHonest{
		stress: x, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}},
		start: time.Now().Add(-24 * time.Hour).UnixMilli(),
		times: map[string]*stressTimes{}, last: map[string]stressLast{},
	}
	for n := range stressSenders {
		h.senders = append(h.senders, &stressSender{stressHonest: h, number: n})
	}
	for _, kind := range []string{"write", "query", "health"} {
		h.times[kind] = &stressTimes{limit: stressPatience}
	}
	h.times["health"].limit = stressHealth
	return h
}

// fill has all series written once.
func (h *stressHonest) fill(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range h.senders {
		all.Go(func() {
			for s.turn < stressSeries/stressBatch {
				s.send(ctx)
			}
		})
	}
	all.Wait()
}

// begin lets everybody loose until stop is called, which returns when all requests are served.
func (h *stressHonest) begin() (stop func()) {
	ctx := h.t.Context()
	var all sync.WaitGroup
	again := func(every time.Duration, do func(context.Context)) {
		all.Go(func() {
			for !h.enough.Load() && ctx.Err() == nil {
				do(ctx)
				promtest.Sleep(ctx, every)
			}
		})
	}
	for _, s := range h.senders {
		again(stressPace, s.send)
	}
	for n := range 2 {
		turn := n
		again(stressPace/2, func(ctx context.Context) { turn++; h.ask(ctx, n, turn) })
	}
	again(stressPace/4, h.checkHealth)
	return func() {
		h.enough.Store(true)
		all.Wait()
	}
}

// ask asks something small.
func (h *stressHonest) ask(ctx context.Context, reader, turn int) {
	one := fmt.Sprintf(`honest{sender="%d",batch="%d",n="%03d"}`, turn%stressSenders, turn%stressBatches,
		turn*7%stressBatch)
	form := url.Values{"query": {one}, "match[]": {one}, "time": {promtest.Seconds(time.UnixMilli(h.start))}}
	form.Set("start", form.Get("time"))
	form.Set("end", promtest.Seconds(time.UnixMilli(h.start+600_000)))
	form.Set("step", "60")
	path, want := "/api/v1/query", `"sender":"`
	switch turn % 4 {
	case 1:
		path = "/api/v1/query_range"
	case 2:
		path = "/api/v1/series"
	case 3:
		path, want = "/api/v1/label/sender/values", `"3"]`
		form.Set("match[]", `honest{n="007",batch="3"}`)
	}
	h.insist(ctx, "query", reader, func(ctx context.Context) (int, http.Header, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.promtsd.URL()+path+"?"+form.Encode(), nil)
		if err != nil {
			return 0, nil, "", err
		}
		code, text, header, err := exchange(h.client, req)
		if err == nil && code == http.StatusOK && !strings.Contains(text, want) {
			err = fmt.Errorf("%s %s: %.300s", path, one, text)
		}
		return code, header, text, err
	})
}

// checkHealth asks by a connection of its own, as those do who watch over a process.
func (h *stressHonest) checkHealth(ctx context.Context) {
	h.insist(ctx, "health", 0, func(ctx context.Context) (int, http.Header, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.promtsd.URL()+"/-/healthy", nil)
		if err != nil {
			return 0, nil, "", err
		}
		req.Close = true
		code, text, header, err := exchange(h.client, req)
		return code, header, text, err
	})
}

// insist repeats a request until it is served, as Prometheus does, and notes how long that took.
func (h *stressHonest) insist(ctx context.Context, kind string, number int,
	do func(context.Context) (code int, header http.Header, text string, err error),
) {
	begun, why, refused := time.Now(), "", 0
	defer func() { h.note(kind, number, begun, why, refused) }()
	for wait := 30 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		try, cancel := context.WithTimeout(ctx, time.Minute)
		code, header, text, err := do(try)
		cancel()
		switch {
		case err != nil:
			why = err.Error()
		case code/100 == 2:
			return
		case code != http.StatusServiceUnavailable:
			h.problem("an honest %s was answered %d: %.300s", kind, code, text)
			return
		default:
			why = text
		}
		refused++
		if after, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
			promtest.Sleep(ctx, time.Duration(after)*time.Second)
		} else {
			promtest.Sleep(ctx, wait)
		}
	}
}

func (h *stressHonest) note(kind string, number int, begun time.Time, why string, refused int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.times[kind]
	took := time.Since(begun)
	s.n++
	s.refused += refused
	h.last[fmt.Sprint(kind, " ", number)] = stressLast{begun, took}
	if took > s.slowest {
		s.slowest, s.why = took, why
	}
	if took > s.limit {
		s.late = append(s.late, took)
	}
}

// take returns what was noted since the last take.
func (h *stressHonest) take() stressFigures {
	h.mu.Lock()
	defer h.mu.Unlock()
	figures := stressFigures{}
	for kind, s := range h.times {
		figures[kind] = *s
		h.times[kind] = &stressTimes{limit: s.limit}
	}
	return figures
}

// normal says which of the honest have not asked since, and been served as before.
func (h *stressHonest) normal(since time.Time) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for who, last := range h.last {
		if last.began.Before(since) || last.took > stressNormal {
			err = errors.Join(err, fmt.Errorf("the last %s began %v after the end and took %v", who, last.began.Sub(since),
				last.took))
		}
	}
	return err
}

func (f stressFigures) String() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(f)) {
		s := f[kind]
		part := fmt.Sprintf("%s: %d, at most %v", kind, s.n, s.slowest.Round(time.Millisecond))
		if s.refused > 0 {
			part += fmt.Sprintf(", %d refused (%.150s)", s.refused, strings.TrimSpace(s.why))
		}
		if len(s.late) > 0 {
			part += fmt.Sprintf(", %d LATE", len(s.late))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// problems says who was served too late, on a machine that others make slower so many times. One in a hundred may be,
// and one at least, by as much again: the attackers run on the same processors.
func (f stressFigures) problems(slow float64) (list []string) {
	for kind, s := range f {
		most := time.Duration(slow * float64(s.limit))
		late := 0
		for _, took := range s.late {
			if took > most {
				late++
			}
		}
		if late > 1+s.n/100 || s.slowest > 2*most {
			list = append(list, fmt.Sprintf("%d of %d of the kind %s took more than %v, the slowest %v: %.300s", late, s.n,
				kind, most, s.slowest, s.why))
		}
	}
	return list
}

// stressSender writes its series batch by batch, a sample of each in a turn.
type stressSender struct {
	*stressHonest
	number int
	turn   int
}

// series is a series of the sender.
func (s *stressSender) series(n int) []prompb.Label {
	return []prompb.Label{
		{Name: "__name__", Value: "honest"}, {Name: "batch", Value: strconv.Itoa(n / stressBatch)},
		{Name: "instance", Value: fmt.Sprintf("10.0.%d.%d:9100", s.number, n%50)}, {Name: "job", Value: "honest"},
		{Name: "n", Value: fmt.Sprintf("%03d", n%stressBatch)}, {Name: "sender", Value: strconv.Itoa(s.number)},
	}
}

// sample is one of a series. The time follows from how often it was written before, and the value from both.
func (s *stressSender) sample(n, before int) request.Sample {
	return request.Sample{T: s.start + int64(before)*stressStep, V: float64(s.number*1_000_000+n) + float64(before)/8}
}

// batches is how many requests have all series.
const stressBatches = stressSeries / stressBatch

// send sends the next request until it is acknowledged.
func (s *stressSender) send(ctx context.Context) {
	first, before := s.turn%stressBatches*stressBatch, s.turn/stressBatches
	var body []remotetest.Series
	for n := first; n < first+stressBatch; n++ {
		body = append(body, remotetest.Series{Labels: s.series(n), Samples: []request.Sample{s.sample(n, before)}})
	}
	message := []string{remotetest.MessageV1, remotetest.MessageV2}[s.number%2]
	s.insist(ctx, "write", s.number, func(ctx context.Context) (int, http.Header, string, error) {
		res, err := remotetest.Write(ctx, s.client, s.promtsd.URL(), message, body)
		if err != nil {
			return 0, nil, "", err
		}
		text, err := io.ReadAll(res.Body)
		return res.StatusCode, res.Header, string(text), err
	})
	s.turn++
}

// readBack compares all that was acknowledged with what is there.
func (h *stressHonest) readBack() {
	begun, samples := time.Now(), 0
	for _, s := range h.senders {
		samples += s.readBack()
	}
	h.t.Logf("%d samples were read back in %v", samples, time.Since(begun).Round(time.Millisecond))
}

func (s *stressSender) readBack() (samples int) {
	answer, err := remotetest.Read(s.t.Context(), http.DefaultClient, s.promtsd.URL(),
		prompb.ReadRequest_STREAMED_XOR_CHUNKS, []*prompb.Query{{
			StartTimestampMs: 0, EndTimestampMs: time.Now().UnixMilli(), Matchers: []*prompb.LabelMatcher{
				{Name: "__name__", Value: "honest"}, {Name: "sender", Value: strconv.Itoa(s.number)},
			},
		}})
	if err != nil {
		s.problem("read back sender %d: %v", s.number, err)
		return 0
	}
	found := map[int][]request.Sample{}
	for _, series := range answer[0] {
		batch, _ := strconv.Atoi(series.Labels.Get("batch"))
		n, _ := strconv.Atoi(series.Labels.Get("n"))
		found[batch*stressBatch+n] = series.Samples
	}
	wrong := 0
	for n := range stressSeries {
		want := (s.turn - n/stressBatch + stressBatches - 1) / stressBatches
		got := found[n]
		same := len(got) == want
		for i := 0; same && i < want; i++ {
			same = got[i] == s.sample(n, i)
		}
		if samples += len(got); same {
			continue
		}
		if wrong++; wrong < 5 {
			s.problem("series %d of sender %d has %d samples, want %d: %.300s", n, s.number, len(got), want, fmt.Sprint(got))
		}
	}
	if wrong > 0 || len(found) != stressSeries {
		s.problem("sender %d: %d of %d series are wrong, %d were found", s.number, wrong, stressSeries, len(found))
	}
	return samples
}
