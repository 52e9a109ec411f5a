// Package stress_test attacks a promtsd with a memory limit, on Linux, while others have a right to be served.
// CONTRIBUTING.md says how to run it for long.
package stress_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/storetest/child"
)

var (
	stressFor = flag.Duration("stress.for", 20*time.Second,
		"how long attacks go on in the stress test after each was made for a moment; above 20m give -timeout, too")
	stressSeed    = flag.Uint64("stress.seed", 1, "seed of the attacks that the stress test mixes")
	stressAttacks = flag.String("stress.attacks", "", "make only attacks whose names match this regular expression")
)

const (
	stressMemory     = 2 << 30                // of the process, in bytes: its resident set stays below
	stressPatience   = 2 * time.Second        // until an honest write is acknowledged, or a small query answered
	stressHealth     = time.Second            // until /-/healthy is answered
	stressCalm       = 10 * time.Second       // from the end of an attack until all is as before
	stressNormal     = 500 * time.Millisecond // what an honest request takes then, at most
	stressGoroutines = 100                    // more than at the start, when all is as before
	stressConns      = 50                     // connections then, those of the honest
	stressMixed      = 3                      // attacks at a time, when they are mixed
	stressLeast      = time.Second
	stressWait       = 20 * time.Second // for the answer that an attack must get
	stressNewNames   = 10_000           // a second
)

// stress is promtsd under a memory limit, asked by strangers for all that could kill or stall it: each attack for a
// moment by itself, then several at a time that a seed draws. Honest senders and readers go on beside them, and check
// it.
type stress struct {
	t       *testing.T
	promtsd *promtest.Process
	honest  *stressHonest
	born    float64 // when the process was started
	threads float64 // goroutines at the start
	peak    int64   // of the resident set, once it was too large

	mu       sync.Mutex // guards problems
	problems []string
}

// TestStress attacks a promtsd on an embedded store. What other promtsd may ask of each other is attacked in
// adapter/peer: on an embedded store nobody listens for them.
func TestStress(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	child.RequireTime(t, *stressFor+5*time.Minute)
	attacks, err := chosenAttacks(*stressAttacks)
	if err != nil {
		t.Fatalf("-stress.attacks: %v", err)
	}
	t.Logf("repeat this by -run '^%s$' -stress.for=%v -stress.seed=%d -stress.attacks='%s'", t.Name(), *stressFor,
		*stressSeed, *stressAttacks)
	t.Setenv("GOMEMLIMIT", strconv.Itoa(stressMemory/10*9)) // what promtsd takes of such a container
	x := &stress{t: t, promtsd: promtest.StartPromtsd(t, promtest.PromtsdConfig{Args: []string{
		"--web.enable-otlp-receiver", "--index.max-series=150000", "--write.max-active-series=300000",
		"--write.max-new-names-per-second=" + strconv.Itoa(stressNewNames),
	}})}
	fillMemoryTest(t, x.promtsd, time.Now().UnixMilli())
	x.honest = newStressHonest(x)
	begun := time.Now()
	x.honest.fill(t.Context())
	t.Logf("%d series of the honest were written in %v", stressSenders*stressSeries,
		time.Since(begun).Round(time.Millisecond))
	stop := x.honest.begin()
	x.awaitQuiet()

	random := rand.New(rand.NewPCG(*stressSeed, 0))
	long := max(stressLeast, *stressFor/200)
	for _, a := range attacks {
		x.wave(long, a)
	}
	end := time.Now().Add(*stressFor)
	for again := true; again; again = time.Now().Before(end) {
		var drawn []*stressAttack
		for _, i := range random.Perm(len(attacks))[:min(len(attacks), stressMixed)] {
			drawn = append(drawn, attacks[i])
		}
		x.wave(4*long, drawn...)
	}
	stop()
	x.honest.readBack()
	x.report()
}

func chosenAttacks(names string) (chosen []*stressAttack, err error) {
	pattern, err := regexp.Compile(names)
	if err != nil {
		return nil, err
	}
	for _, attacks := range [][]stressAttack{queryAttacks(), readAttacks(), writeAttacks(), decodeAttacks(),
		connectionAttacks()} {
		for _, a := range attacks {
			if pattern.MatchString(a.name) {
				chosen = append(chosen, &a)
			}
		}
	}
	return chosen, nil
}

// awaitQuiet waits until all is quiet, and notes how that is.
func (x *stress) awaitQuiet() {
	promtest.Until(x.t, "promtsd is measured", func(ctx context.Context) (err error) {
		x.born, err = promtest.Metric(ctx, x.promtsd.URL(), "process_start_time_seconds")
		return err
	})
	if err := x.calm(time.Minute); err != nil {
		x.t.Fatalf("before the first attack: %v", err)
	}
	var err error
	if x.threads, err = promtest.Metric(x.t.Context(), x.promtsd.URL(), "go_goroutines"); err != nil {
		x.t.Fatal(err)
	}
}

// wave makes some attacks at a time, for so long and until each has got the answer that it must get, and sees to it
// that all is as before soon after.
func (x *stress) wave(long time.Duration, attacks ...*stressAttack) {
	var names []string
	for _, a := range attacks {
		names = append(names, a.name)
	}
	name := strings.Join(names, " + ")
	x.honest.take()
	ctx, cancel := context.WithCancel(x.t.Context())
	defer cancel()
	var all sync.WaitGroup
	var runs []*stressRun
	for _, a := range attacks {
		run := &stressRun{stressAttack: a, met: map[string]int{}, answered: make(chan struct{})}
		runs = append(runs, run)
		for n := range a.clients {
			c := newStressClient(x, run, n)
			all.Go(func() { c.run(ctx) })
		}
	}
	begun, before := time.Now(), x.processors()
	promtest.Sleep(ctx, long)
	if len(runs) == 1 {
		runs[0].await(stressWait)
	}
	cancel()
	all.Wait()
	ended := time.Now()
	patience := time.Duration(x.processors().slowness(before) * float64(stressCalm))
	err := x.calm(patience)
	figures, slow := x.honest.take(), x.processors().slowness(before)
	usage := x.promtsd.Usage()
	x.t.Logf("%s: %v, calm after %v; at most %d MiB so far; others slow it by %.1f; %v", name,
		ended.Sub(begun).Round(100*time.Millisecond),
		time.Since(ended).Round(100*time.Millisecond), usage.PeakRSS>>20, slow, figures)
	for _, run := range runs {
		x.t.Logf("    %s", run)
		for _, p := range run.problems(len(runs) > 1) {
			x.problem("%s: %s", name, p)
		}
	}
	if err != nil {
		x.problem("%s: %v after its end: %v", name, patience, err)
	}
	for _, p := range figures.problems(slow) {
		x.problem("%s: %s", name, p)
	}
	if usage.PeakRSS > max(stressMemory, x.peak) {
		x.peak = usage.PeakRSS
		x.problem("%s: the process had %d MiB, want below %d", name, usage.PeakRSS>>20, stressMemory>>20)
	}
}

// calm waits until all is as before, and says what is not. A promtsd that has died ends the test.
func (x *stress) calm(within time.Duration) error {
	begun := time.Now()
	return child.Until(x.t.Context(), within, func(ctx context.Context) error {
		url := x.promtsd.URL()
		born, err := promtest.Metric(ctx, url, "process_start_time_seconds")
		if err != nil {
			return err
		}
		if born != x.born {
			return fmt.Errorf("%w: it is another process", child.ErrHopeless)
		}
		for name, most := range map[string]float64{
			"promtsd_query_memory_bytes": 0, "promtsd_write_in_flight_bytes": 0, "promtsd_http_connections": stressConns,
			"go_goroutines": x.threads + stressGoroutines,
		} {
			if v, metricErr := promtest.Metric(ctx, url, name); x.threads > 0 && v > most {
				metricErr = fmt.Errorf("%s is %v", name, v)
				err = errors.Join(err, metricErr)
			} else {
				err = errors.Join(err, metricErr)
			}
		}
		if text, readyErr := promtest.Get(ctx, http.DefaultClient, url+"/-/ready"); readyErr != nil || !strings.Contains(text,
			"is ready") {
			err = errors.Join(err, readyErr, errors.New(text))
		}
		return errors.Join(err, x.honest.normal(begun))
	})
}

func (x *stress) processors() processors {
	now, err := processorsNow(x.promtsd)
	if err != nil {
		x.t.Fatal(err)
	}
	return now
}

// problem notes what is wrong. It may be called by any goroutine.
func (x *stress) problem(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.problems = append(x.problems, fmt.Sprintf(format, args...))
}

func (x *stress) report() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.problems {
		x.t.Error(p)
	}
}
