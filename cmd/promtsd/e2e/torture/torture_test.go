// Package torture_test has senders and readers go on while everything around promtsd fails, by a schedule that a seed
// draws. All that is read is compared with all that was sent. CONTRIBUTING.md says how to run it for long.
package torture_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/store/storetest/child"
)

var (
	tortureFor = flag.Duration("torture.for", 20*time.Second,
		"how long each torture test goes on; above 8m give -timeout, too")
	tortureSeed   = flag.Uint64("torture.seed", 1, "seed of the schedule of a torture test")
	tortureFaults = flag.String("torture.faults", "", "draw only faults whose names match this regular expression")
)

const (
	tortureRecovery = time.Minute // from the last fault of a round until everything is served
	// rounds, after which senders take new series and the old ones are read back as a whole
	tortureEra        = 3
	tortureErasKept   = 4         // that readers ask for
	tortureProblems   = 20        // that are printed
	tortureMemory     = 600 << 20 // of each promtsd, in bytes, at any time
	tortureGoroutines = 1000      // of each promtsd when the faults of a round are healed
)

// torture is promtsd at work on one store while everything around it fails, by a schedule that is drawn from a seed:
// senders and readers go on all the time, and all that they see is held against what was sent.
//
// A round is some faults and the time until all is well again. An era is some rounds, after which the senders take
// other series, and all that was acknowledged is read back from each promtsd in every way.
type torture struct {
	t         *testing.T
	history   *tortureHistory
	nodes     []*tortureNode
	injectors []faultInjector
	started   time.Time
	recovered func() // waits until the store itself is well again; nil: it always is

	senders []*tortureSender
	enough  atomic.Bool
	groups  atomic.Pointer[[]group] // that readers may ask for
	work    sync.WaitGroup          // senders and readers
	aside   sync.WaitGroup          // faults that take their time
	excuse  excuse                  // of the round
	counts  tortureCounts

	mu       sync.Mutex // guards problems
	problems []string
}

// tortureCounts counts what the senders and readers met.
type tortureCounts struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tortureCounts) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[what] += n
}

func (c *tortureCounts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(c.seen)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, c.seen[what]))
	}
	return strings.Join(parts, ", ")
}

// TestTorture_Embedded tortures one promtsd on an embedded store, whose disk loses at each kill what was not synced.
func TestTorture_Embedded(t *testing.T) {
	x := newTorture(t, slices.Concat(promtsdInjectors(), embeddedInjectors()))
	store := func(dir string) string { return "pebble:" + filepath.ToSlash(dir) }
	x.nodes = []*tortureNode{newTortureNode(t, 0, store, tortureFlags(0, func(pick func(...string) string) []string {
		// No sample that is asked for is older than two days.
		return []string{"--retention=" + pick("0s", "3d", "400d")}
	}))}
	long := *tortureFor
	if testing.Short() {
		long = min(long, 5*time.Second)
	}
	x.run(long)
}

// tortureFlags draws the flags of each life of a node, besides those that all have.
func tortureFlags(node int, draw func(pick func(values ...string) string) []string) func(life int) []string {
	return func(life int) []string {
		random := rand.New(rand.NewPCG(*tortureSeed, uint64(node)<<32|uint64(life)))
		pick := func(values ...string) string { return values[random.IntN(len(values))] }
		return append([]string{
			"--write.flush-interval=" + pick("0", "1s", "2s", "10s", "5m"),
			"--write.lease-ttl=" + pick("1s", "3s", "8s"),
			"--write.max-buffered-bytes=" + pick("2MiB", "64MiB"),
			"--write.max-future=0", // a clock may be years behind
			"--web.enable-otlp-receiver",
			"--store.cache-bytes=16MiB",
			"--web.drain-timeout=5s",
		}, draw(pick)...)
	}
}

func newTorture(t *testing.T, injectors []faultInjector) *torture {
	t.Helper()
	child.RequireTime(t, *tortureFor+2*tortureRecovery)
	if *tortureFaults != "" {
		names, err := regexp.Compile(*tortureFaults)
		if err != nil {
			t.Fatalf("-torture.faults: %v", err)
		}
		injectors = slices.DeleteFunc(injectors, func(s faultInjector) bool { return !names.MatchString(s.name) })
		for i := range injectors {
			injectors[i].weight = max(injectors[i].weight, 1)
		}
	}
	return &torture{t: t, history: newTortureHistory(), injectors: injectors, started: time.Now()}
}

// run tortures for so long.
func (x *torture) run(long time.Duration) {
	t := x.t
	t.Logf("repeat this by -run '^%s$' -torture.for=%v -torture.seed=%d -torture.faults='%s'", t.Name(), long,
		*tortureSeed, *tortureFaults)
	random := rand.New(rand.NewPCG(*tortureSeed, 0))
	x.hire()
	for _, d := range x.nodes {
		d.wake()
	}
	x.recover("the start")
	end := time.Now().Add(long)
	for era := 0; time.Now().Before(end); era++ {
		stop := x.begin(era)
		for round := 0; round < tortureEra && time.Now().Before(end); round++ {
			x.round(fmt.Sprintf("round %d.%d", era, round), x.drawRound(random))
		}
		stop()
		x.readBack(era)
	}
	for _, d := range x.nodes {
		d.kill()
		d.wake()
	}
	x.recover("a kill of all")
	x.readBack(-1)
	for _, d := range x.nodes {
		if err := d.terminate(); err != nil {
			t.Errorf("%s, asked to end at last: %v", d.name, err)
		}
		d.wake()
	}
	x.recover("a clean end of all")
	x.readBack(-1)
	t.Logf("in %v: %v", time.Since(x.started).Round(time.Second), &x.counts)
}

// hire makes the senders, two of each kind.
func (x *torture) hire() {
	for id := range 2 * senderKinds {
		x.senders = append(x.senders, &tortureSender{
			torture: x, group: group{sender: id}, kind: id % senderKinds, client: newTortureClient(),
			random: rand.New(rand.NewPCG(*tortureSeed, uint64(id)+1)),
		})
	}
	x.groups.Store(&[]group{{}})
}

func newTortureClient() *http.Client { return &http.Client{Transport: &http.Transport{}} }

func (x *torture) someGroup() group {
	groups := *x.groups.Load()
	return groups[rand.IntN(len(groups))]
}

// begin lets the senders loose on new series, and readers; the returned function stops them.
func (x *torture) begin(era int) (stop func()) {
	x.enough.Store(false)
	x.history.forget(era - tortureErasKept)
	var groups []group
	for _, s := range x.senders {
		s.begin(era)
		for kept := max(era-tortureErasKept+1, 0); kept <= era; kept++ {
			for _, content := range contents(s.kind) {
				groups = append(groups, group{s.sender, kept, content})
			}
		}
	}
	x.groups.Store(&groups)
	ctx, cancel := context.WithCancel(x.t.Context())
	for _, s := range x.senders {
		x.work.Go(func() { s.run(ctx) })
	}
	for _, d := range x.nodes {
		for range 2 {
			r := &tortureReader{torture: x, node: d, client: newTortureClient()}
			x.work.Go(func() { r.run(ctx) })
		}
	}
	return func() {
		x.enough.Store(true)
		patience := time.AfterFunc(tortureRecovery, func() {
			x.problem("senders do not get their last requests acknowledged")
			cancel()
		})
		x.work.Wait()
		patience.Stop()
		cancel()
	}
}

// round inflicts some faults, heals them, and waits until everything is served again.
func (x *torture) round(name string, faults []fault) {
	t := x.t
	x.excuse = 0
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	for _, f := range faults {
		t.Logf("%s: %s", name, f)
		x.excuse |= f.excuse
		events = append(events, event{f.at, f.begin}, event{f.until, f.end})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	begun := time.Now()
	for _, e := range events {
		promtest.Sleep(t.Context(), time.Until(begun.Add(e.at)))
		e.do()
	}
	x.aside.Wait()
	if x.recovered != nil {
		x.recovered()
		t.Logf("%s: the store is well after %v", name, time.Since(begun).Round(10*time.Millisecond))
	}
	x.recover(name)
	x.failIfWrong()
}

// background runs a part of a fault that takes its time.
func (x *torture) background(do func()) { x.aside.Go(do) }

// recover waits until each promtsd acknowledges a write that all then read back, and looks at what they use.
func (x *torture) recover(what string) {
	begun := time.Now()
	for _, d := range x.nodes {
		d.wake()
	}
	probe := group{sender: -1, era: int(begun.UnixNano())} // nobody else's
	var writes []write
	for i := range x.nodes {
		c := x.history.add(probe, []prompb.Label{
			{Name: "__name__", Value: "torture_probe"}, {Name: "era", Value: strconv.Itoa(probe.era)},
			{Name: "job", Value: "torture"},
			{Name: "n", Value: strconv.Itoa(i)}, {Name: "sender", Value: strconv.Itoa(probe.sender)},
		})
		writes = append(writes, write{c, begun.Add(-4 * time.Hour).UnixMilli(), 1})
	}
	for i, d := range x.nodes {
		request := writes[i : i+1]
		x.history.sending(request)
		x.until(begun, what, d.name+" acknowledges a write", func(ctx context.Context) error {
			return remotetest.WriteInTurn(ctx, d.url(), 0, seriesOf(request))
		})
		x.history.acknowledged(request)
	}
	for _, d := range x.nodes {
		r := tortureReader{torture: x, node: d, client: http.DefaultClient}
		mint, maxt := x.span()
		for _, how := range accesses[probe.content] {
			x.until(begun, what, d.name+" reads that back", func(ctx context.Context) error {
				return r.read(ctx, d.url(), how, probe, mint, maxt)
			})
		}
		x.measure(d)
	}
	x.history.forget(probe.era)
	x.t.Logf("%s: all is well after %v; %v", what, time.Since(begun).Round(10*time.Millisecond), &x.counts)
}

// until waits for what has to be within the time of recovery, and ends the test if it is not.
func (x *torture) until(begun time.Time, after, what string, cond func(ctx context.Context) error) {
	x.t.Helper()
	if !x.await(begun, after, what, cond) {
		x.failIfWrong()
	}
}

// await is until that notes a problem only. It may be called by any goroutine.
func (x *torture) await(begun time.Time, after, what string, cond func(ctx context.Context) error) bool {
	err := child.Until(x.t.Context(), max(time.Until(begun.Add(tortureRecovery)), 5*time.Second), cond)
	if err != nil {
		x.problem("after %s: not within %v: %s: %v", after, tortureRecovery, what, err)
	}
	return err == nil
}

// measure looks at the memory and the goroutines of a promtsd.
func (x *torture) measure(d *tortureNode) {
	resident, err := promtest.Metric(x.t.Context(), d.url(), "process_resident_memory_bytes")
	if err == nil && resident > tortureMemory {
		x.problem("%s takes %d MiB of memory, want at most %d", d.name, int(resident)>>20, tortureMemory>>20)
	}
	x.until(time.Now(), "that", "goroutines of "+d.name+" end", func(ctx context.Context) error {
		n, err := promtest.Metric(ctx, d.url(), "go_goroutines")
		if err == nil && n > tortureGoroutines {
			err = fmt.Errorf("there are %v, want at most %d", n, tortureGoroutines)
		}
		return err
	})
}

// readBack reads all of an era, or of all eras that are kept, from each node in every way: nothing may be missing, and
// nobody may warn.
func (x *torture) readBack(era int) {
	begun := time.Now()
	mint, maxt := x.span()
	var reads sync.WaitGroup
	for _, d := range x.nodes {
		r := tortureReader{torture: x, node: d, client: http.DefaultClient}
		reads.Go(func() {
			for _, g := range *x.groups.Load() {
				if era >= 0 && g.era != era {
					continue
				}
				for _, how := range accesses[g.content] {
					what := fmt.Sprintf("%s reads back sender %d, era %d by %s", d.name, g.sender, g.era, how)
					if !x.await(time.Now(), "that", what, func(ctx context.Context) error {
						return r.read(ctx, d.url(), how, g, mint, maxt)
					}) {
						return
					}
				}
			}
		})
	}
	reads.Wait()
	x.failIfWrong()
	x.t.Logf("all was read back in %v", time.Since(begun).Round(10*time.Millisecond))
}

// inflict changes the faults of a node.
func (x *torture) inflict(d *tortureNode, change func(t *injectedFaults)) {
	if err := d.inflict(change); err != nil {
		x.problem("inflict: %v", err)
	}
}

// endedBadly notes that a node which was asked to end did not end well.
func (x *torture) endedBadly(d *tortureNode, err error) {
	if x.excuse&mayStall == 0 {
		x.problem("%s, asked to end: %v", d.name, err)
	}
}

// problem notes what is wrong. It may be called by any goroutine.
func (x *torture) problem(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.problems = append(x.problems, fmt.Sprintf(format, args...))
}

// failIfWrong ends the test if anything was wrong so far.
func (x *torture) failIfWrong() {
	x.t.Helper()
	for _, d := range x.nodes {
		deaths, crashes := d.inspect()
		for _, death := range deaths {
			if x.t.Log(death); x.excuse&mayEnd == 0 {
				x.problem("%s", death)
			}
		}
		for _, crash := range crashes {
			x.problem("%s", crash)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.problems[:min(len(x.problems), tortureProblems)] {
		x.t.Error(p)
	}
	if len(x.problems) > 0 {
		x.t.Fatalf("%d problems in all; %v; seed %d", len(x.problems), &x.counts, *tortureSeed)
	}
}
