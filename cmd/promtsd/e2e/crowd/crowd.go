// Package crowd is senders and a reader of remote write and read that go on while promtsd, or the HBase below it, is
// killed, frozen or moved, and check what they read; and what shows that one promtsd took over the journal of another.
package crowd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// Patience is how long an answer may take, far above what promtsd takes unless it is frozen.
const Patience = time.Minute

// Config says how a crowd behaves.
type Config struct {
	Patience time.Duration // whoever does not answer for so long is left alone; default: Patience
	Pause    time.Duration // of a sender after each request; default: 50 ms
}

const (
	crowdSenders     = 4
	crowdSamples     = 8   // of a request, each of another series
	crowdRun         = 50  // requests after which a sender takes new series
	crowdIntervalMs  = 500 // between the samples of a sender
	crowdPause       = 50 * time.Millisecond
	crowdProgress    = 10 // requests of each sender that show that writes go on
	maxResident      = 600 << 20
	maxCrowdProblems = 10
)

// Crowd is senders and a reader that go on whatever happens. A sender sends its requests 0, 1, 2... in order, each
// again and again, in turn to all of the promtsd, until it is acknowledged. So all requests before a certain one are
// acknowledged, and none behind the one that follows was ever sent.
type Crowd struct {
	config Config
	urls   []string
	start  int64 // time of sample 0

	mu       sync.Mutex // guards what follows
	begun    [crowdSenders]int
	acked    [crowdSenders]int
	writes   tally
	reads    tally
	resident []uint64 // most memory of each promtsd, in bytes
	warned   int      // reads whose answer may miss samples, since the last report
	problems []string // since the last report
}

// tally is what was answered since the last report.
type tally struct {
	answers map[string]int
	longest time.Duration
	failure string // text of the last answer that was none of success
}

// noAnswer stands for the status of a request that was cut off, or met nobody.
const noAnswer = "none"

func (t *tally) add(answer string, took time.Duration, failure string) {
	t.answers[answer]++
	t.longest = max(t.longest, took)
	if failure != "" {
		t.failure = failure
	}
}

func (t *tally) String() string {
	return fmt.Sprintf("%v, the longest in %s", t.answers, t.longest.Round(time.Millisecond))
}

// sample is a sender's sample: a value of any bits, and the labels of its series.
func (c *Crowd) sample(sender, n int) (request.Sample, []prompb.Label) {
	random := rand.New(rand.NewPCG(uint64(sender), uint64(n)))
	series := n % crowdSamples
	p := request.Sample{T: c.start + int64(n)*crowdIntervalMs, V: math.Float64frombits(random.Uint64())}
	return p, []prompb.Label{
		{Name: "__name__", Value: "crowd_" + strconv.Itoa(series%2)},
		{Name: "run", Value: strconv.Itoa(n / crowdSamples / crowdRun)},
		{Name: "sender", Value: strconv.Itoa(sender)},
		{Name: "series", Value: strconv.Itoa(series)},
	}
}

// Start lets the crowd loose on the promtsd at urls; the returned function stops it and waits for it.
func Start(t *testing.T, config Config, urls ...string) (*Crowd, func()) {
	config.Patience, config.Pause = cmp.Or(config.Patience, Patience), cmp.Or(config.Pause, crowdPause)
	c := &Crowd{
		config: config, urls: urls, start: time.Now().Add(-24 * time.Hour).UnixMilli(), resident: make([]uint64, len(urls)),
	}
	c.writes.answers, c.reads.answers = map[string]int{}, map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	conns := &http.Client{Transport: &http.Transport{}, Timeout: config.Patience}
	if !c.send(ctx, conns, 0) { // alone, so that the two metrics have the UIDs 1 and 2
		t.Fatalf("the first request was not accepted: %s", c.writes.failure)
	}
	var all sync.WaitGroup
	for sender := range crowdSenders {
		all.Go(func() {
			for c.send(ctx, conns, sender) {
				promtest.Sleep(ctx, config.Pause)
			}
		})
	}
	all.Go(func() {
		for turn := 0; ctx.Err() == nil; turn++ {
			_ = c.read(ctx, conns, turn%len(urls), remotetest.ResponseTypes[turn/len(urls)%2]) // a failure is counted
			promtest.Sleep(ctx, 4*crowdPause)
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			c.measure(ctx, conns)
			promtest.Sleep(ctx, 10*crowdPause)
		}
	})
	stop := func() {
		cancel()
		all.Wait()
		conns.CloseIdleConnections()
	}
	t.Cleanup(stop)
	return c, stop
}

// send delivers the next request of a sender. It gives up when ctx ends, or on an answer that makes real senders drop
// what they sent.
func (c *Crowd) send(ctx context.Context, conns *http.Client, sender int) bool {
	c.mu.Lock()
	number := c.acked[sender]
	c.begun[sender] = number + 1
	c.mu.Unlock()
	var series []remotetest.Series
	for n := number * crowdSamples; n < (number+1)*crowdSamples; n++ {
		p, labels := c.sample(sender, n)
		series = append(series, remotetest.Series{Labels: labels, Samples: []request.Sample{p}})
	}
	message := []string{remotetest.MessageV1, remotetest.MessageV2}[number%2]
	for try := sender; ctx.Err() == nil; try++ {
		begin := time.Now()
		res, err := remotetest.Write(ctx, conns, c.urls[try%len(c.urls)], message, series)
		took := time.Since(begin)
		if ctx.Err() != nil {
			return false
		}
		if c.note(sender, message, res, err, took) {
			return true
		}
		if err == nil && res.StatusCode/100 == 4 {
			return false
		}
		promtest.Sleep(ctx, c.config.Pause)
	}
	return false
}

// note takes note of the outcome of a request, and reports whether it was acknowledged.
func (c *Crowd) note(sender int, message string, res *http.Response, err error, took time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.writes.add(noAnswer, took, err.Error())
		return false
	}
	text, _ := io.ReadAll(res.Body) // it is in memory
	status := strconv.Itoa(res.StatusCode)
	if res.StatusCode/100 != 2 {
		c.writes.add(status, took, string(text))
		if res.StatusCode != http.StatusServiceUnavailable {
			c.problem("a write was answered %s: %s", res.Status, text)
		}
		return false
	}
	c.writes.add(status, took, "")
	written := res.Header.Get("X-Prometheus-Remote-Write-Samples-Written")
	if message == remotetest.MessageV2 && written != strconv.Itoa(crowdSamples) {
		c.problem("a write of %d samples was answered %s, with %q samples written", crowdSamples, res.Status, written)
	}
	c.acked[sender]++
	return true
}

// problem keeps a problem for the next report. mu is held.
func (c *Crowd) problem(format string, args ...any) {
	switch len(c.problems) {
	case maxCrowdProblems:
		c.problems = append(c.problems, "and more")
	case maxCrowdProblems + 1:
	default:
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// errWarned says that an answer may miss samples, of which promtsd has warned.
var errWarned = errors.New("promtsd warned that samples may be missing")

// read reads everything from one promtsd. Whatever was acknowledged before must be in the answer, if there is one and
// promtsd does not warn that samples may be missing.
func (c *Crowd) read(ctx context.Context, conns *http.Client, at int, form prompb.ReadRequest_ResponseType) error {
	c.mu.Lock()
	acked := c.acked
	c.mu.Unlock()
	before, err := promtest.ReadWarnings(ctx, c.urls[at])
	if err != nil {
		return err // it is down
	}
	begin := time.Now()
	answer, err := remotetest.Read(ctx, conns, c.urls[at], form, []*prompb.Query{{
		StartTimestampMs: c.start - 1, EndTimestampMs: begin.Add(time.Hour).UnixMilli(),
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: "crowd_[01]"}},
	}})
	took := time.Since(begin)
	after, metricErr := promtest.ReadWarnings(ctx, c.urls[at])
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = metricErr
	}
	if err != nil {
		c.reads.add("failed", took, err.Error())
		if strings.HasPrefix(err.Error(), "4") {
			c.problem("a read was answered %v", err)
		}
		return err
	}
	c.reads.add("200", took, "")
	if after != before { // in this answer or another
		c.warned++
		acked = [crowdSenders]int{}
	}
	c.verify(fmt.Sprintf("read from promtsd %d in form %v", at, form), answer[0], acked)
	if after != before {
		return errWarned
	}
	return nil
}

// verify compares an answer with what must be there: so many requests of each sender. mu is held.
func (c *Crowd) verify(what string, answer []remotetest.ReadSeries, acked [crowdSenders]int) {
	var there [crowdSenders][]bool
	for s := range there {
		there[s] = make([]bool, c.begun[s]*crowdSamples)
	}
	for _, s := range answer {
		sender, err := strconv.Atoi(s.Labels.Get("sender"))
		if err != nil || sender < 0 || sender >= crowdSenders {
			c.problem("%s: a series that was not written: %s", what, s.Labels)
			continue
		}
		for _, p := range s.Samples {
			n := int((p.T - c.start) / crowdIntervalMs)
			want, labels := c.sample(sender, n)
			switch {
			case n < 0 || n >= len(there[sender]) || want.T != p.T,
				remotetest.SortedLabels(labels).String() != s.Labels.String():
				c.problem("%s: series %s has a sample at %d that was not sent", what, s.Labels, p.T)
				continue
			case math.Float64bits(want.V) != math.Float64bits(p.V):
				c.problem("%s: sample %d of sender %d is %016x, want %016x", what, n, sender,
					math.Float64bits(p.V), math.Float64bits(want.V))
			case there[sender][n]:
				c.problem("%s: sample %d of sender %d is there twice", what, n, sender)
			}
			there[sender][n] = true
		}
	}
	for sender, requests := range acked {
		for n, found := range there[sender][:requests*crowdSamples] {
			if !found {
				c.problem("%s: sample %d of sender %d was acknowledged and is missing", what, n, sender)
			}
		}
	}
}

var residentMetric = regexp.MustCompile(`(?m)^process_resident_memory_bytes (.*)$`)

// measure takes note of the memory of each promtsd that answers.
func (c *Crowd) measure(ctx context.Context, conns *http.Client) {
	for i, url := range c.urls {
		text, err := promtest.Get(ctx, conns, url+"/metrics")
		if err != nil {
			continue // it is down
		}
		found := residentMetric.FindStringSubmatch(text)
		c.mu.Lock()
		if found == nil {
			c.problem("promtsd %d does not tell its memory", i)
		} else if bytes, err := strconv.ParseFloat(found[1], 64); err != nil {
			c.problem("promtsd %d tells its memory as %q", i, found[1])
		} else {
			c.resident[i] = max(c.resident[i], uint64(bytes))
		}
		c.mu.Unlock()
	}
}

// GoesOn returns when every sender has got several more requests acknowledged.
func (c *Crowd) GoesOn(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	before := c.acked
	c.mu.Unlock()
	begin := time.Now()
	promtest.Until(t, "writes go on", func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for sender, acked := range c.acked {
			if acked < before[sender]+crowdProgress {
				return fmt.Errorf("sender %d got %d requests acknowledged; writes: %v, the last failure was %s",
					sender, acked-before[sender], &c.writes, c.writes.failure)
			}
		}
		return nil
	})
	t.Logf("%d more requests of each sender were acknowledged after %s",
		crowdProgress, time.Since(begin).Round(time.Millisecond))
}

// Await returns when n more requests are acknowledged, of whatever senders.
func (c *Crowd) Await(t *testing.T, n int) {
	t.Helper()
	acknowledged := func() (all int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, acked := range c.acked {
			all += acked
		}
		return all
	}
	before := acknowledged()
	promtest.Until(t, "requests are acknowledged", func(context.Context) error {
		if got := acknowledged() - before; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

// Refused returns how many writes were answered 503 since the last report.
func (c *Crowd) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes.answers[strconv.Itoa(http.StatusServiceUnavailable)]
}

// Check reads everything back from every promtsd, as soon as it answers without a warning.
func (c *Crowd) Check(t *testing.T, forms ...prompb.ReadRequest_ResponseType) {
	t.Helper()
	for at := range c.urls {
		c.CheckOne(t, at, forms...)
	}
}

// CheckOne is Check of one promtsd.
func (c *Crowd) CheckOne(t *testing.T, at int, forms ...prompb.ReadRequest_ResponseType) {
	t.Helper()
	for _, form := range forms {
		promtest.Until(t, "everything is read back", func(ctx context.Context) error {
			return c.read(ctx, http.DefaultClient, at, form)
		})
	}
}

// Report tells what the senders saw since the last report. Only while a promtsd is down may they get no answer.
func (c *Crowd) Report(t *testing.T, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	acked := 0
	for _, requests := range c.acked {
		acked += requests
	}
	t.Logf("writes: %v; reads: %v, of which %d warned; %d samples acknowledged in all; most memory %d bytes",
		&c.writes, &c.reads, c.warned, acked*crowdSamples, c.resident)
	for _, failed := range []tally{c.writes, c.reads} {
		if failed.failure != "" {
			t.Logf("the last failure was: %s", failed.failure)
		}
	}
	if n := c.writes.answers[noAnswer]; n > 0 && !down {
		t.Errorf("%d writes got no answer, the last: %s", n, c.writes.failure)
	}
	for at, bytes := range c.resident {
		if bytes > maxResident {
			t.Errorf("promtsd %d took %d MiB of memory, want at most %d", at, bytes>>20, maxResident>>20)
		}
	}
	for _, problem := range c.problems {
		t.Error(problem)
	}
	c.writes, c.reads = tally{answers: map[string]int{}}, tally{answers: map[string]int{}}
	c.problems, c.warned = nil, 0
}
