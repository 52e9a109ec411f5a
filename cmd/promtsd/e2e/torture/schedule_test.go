package torture_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is one thing that happens in a round: it begins and is healed again.
type fault struct {
	what       string
	at, until  time.Duration // since the round began
	begin, end func()
	excuse     excuse
}

// excuse is what a fault makes of things that would be faults of promtsd otherwise.
type excuse uint

const (
	mayEnd   excuse = 1 << iota // a promtsd may end by itself, to be started again
	mayStall                    // a promtsd may not end in time when it is asked to, or not well
)

// faultInjector draws faults of one kind.
type faultInjector struct {
	name   string
	weight int
	draw   func(x *torture, random *rand.Rand) fault
}

// drawRound draws the faults of a round: one, two or three, that may overlap.
func (x *torture) drawRound(random *rand.Rand) []fault {
	total := 0
	for _, s := range x.injectors {
		total += s.weight
	}
	var faults []fault
	for range 1 + random.IntN(3) {
		pick := random.IntN(total)
		i := slices.IndexFunc(x.injectors, func(s faultInjector) bool { pick -= s.weight; return pick < 0 })
		f := x.injectors[i].draw(x, random)
		f.at = time.Duration(random.Int64N(int64(2*time.Second))) / 1e6 * 1e6
		f.until += f.at
		f.what = x.injectors[i].name + " " + f.what
		faults = append(faults, f)
	}
	slices.SortFunc(faults, func(a, b fault) int { return int(a.at - b.at) })
	return faults
}

func (f fault) String() string {
	return fmt.Sprintf("+%v to +%v: %s", f.at, f.until, strings.TrimSpace(f.what))
}

// upTo is a time of whole milliseconds.
func upTo(random *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(random.Int64N(int64(to-from)))).Truncate(time.Millisecond)
}

func (x *torture) someNode(random *rand.Rand) *tortureNode { return x.nodes[random.IntN(len(x.nodes))] }

// The faults of any promtsd.

func drawKill(x *torture, random *rand.Rand) fault {
	d := x.someNode(random)
	return fault{what: d.name, until: upTo(random, 0, 2*time.Second), begin: d.kill, end: d.wake}
}

// drawKillAgain kills a node as it starts.
func drawKillAgain(x *torture, random *rand.Rand) fault {
	d, after := x.someNode(random), upTo(random, 0, 600*time.Millisecond)
	return fault{
		what: fmt.Sprintf("%s, and again %v after its start", d.name, after), until: 0,
		begin: func() {
			d.kill()
			d.wake()
			time.Sleep(after)
			d.kill()
		},
		end: d.wake,
	}
}

func drawTerminate(x *torture, random *rand.Rand) fault {
	d := x.someNode(random)
	return fault{
		what: d.name, until: upTo(random, 0, 2*time.Second),
		begin: func() {
			x.background(func() {
				if err := d.terminate(); err != nil {
					x.endedBadly(d, err)
				}
				d.wake()
			})
		},
		end: func() {},
	}
}

func drawFreeze(x *torture, random *rand.Rand) fault {
	d, long := x.someNode(random), upTo(random, 50*time.Millisecond, time.Second)
	if random.IntN(2) == 0 {
		long = upTo(random, time.Second, 6*time.Second)
	}
	return fault{what: d.name, until: long, begin: d.freeze, end: d.thaw}
}

// drawClock steps the clock of a node by up to so long, forward or back. Often it is left there.
func drawClock(steps ...time.Duration) func(*torture, *rand.Rand) fault {
	return func(x *torture, random *rand.Rand) fault {
		d := x.someNode(random)
		step := upTo(random, time.Millisecond, steps[random.IntN(len(steps))])
		if random.IntN(2) == 0 {
			step = -step
		}
		stays := random.IntN(2) == 0
		f := fault{
			what: fmt.Sprintf("%s by %v", d.name, step), until: upTo(random, 100*time.Millisecond, 3*time.Second),
			begin: func() { x.inflict(d, func(t *injectedFaults) { t.ClockMs = step.Milliseconds() }) },
			end:   func() {},
		}
		if !stays {
			f.end = func() { x.inflict(d, func(t *injectedFaults) { t.ClockMs = 0 }) }
		}
		return f
	}
}

func drawFront(x *torture, random *rand.Rand) fault {
	d, what := x.someNode(random), frontFaults[random.IntN(len(frontFaults))]
	return fault{
		what: d.name + ": " + what, until: upTo(random, 500*time.Millisecond, 4*time.Second),
		begin: func() { d.spoil(what) }, end: func() { d.spoil("") },
	}
}

// drawHangers has senders connect that never finish what they say.
func drawHangers(x *torture, random *rand.Rand) fault {
	d, n := x.someNode(random), 10+random.IntN(200)
	var hangUp func()
	return fault{
		what: fmt.Sprintf("%s: %d", d.name, n), until: upTo(random, 500*time.Millisecond, 4*time.Second),
		begin: func() { hangUp = hangers(d, n) }, end: func() { hangUp() },
	}
}

// drawDisk makes the disk of a node sick.
func drawDisk(disk string, excuse excuse) func(*torture, *rand.Rand) fault {
	return func(x *torture, random *rand.Rand) fault {
		d := x.someNode(random)
		return fault{
			what: d.name, until: upTo(random, 200*time.Millisecond, 5*time.Second), excuse: excuse,
			begin: func() { x.inflict(d, func(t *injectedFaults) { t.Disk = disk }) },
			end:   func() { x.inflict(d, func(t *injectedFaults) { t.Disk = "" }) },
		}
	}
}

// promtsdInjectors are the faults of any promtsd.
func promtsdInjectors() []faultInjector {
	return []faultInjector{
		{"kill", 4, drawKill},
		{"kill", 2, drawKillAgain},
		{"terminate", 2, drawTerminate},
		{"freeze", 3, drawFreeze},
		{"step the clock of", 3, drawClock(50*time.Millisecond, 5*time.Second, 2*time.Hour)},
		{"step years the clock of", 1, drawClock(20 * 365 * 24 * time.Hour)},
		{"front of", 3, drawFront},
		{"hanging senders at", 1, drawHangers},
	}
}

// embeddedInjectors are the faults of the disk below an embedded store.
func embeddedInjectors() []faultInjector {
	return []faultInjector{
		{"slow disk of", 2, drawDisk("slow", 0)},
		{"hung disk of", 2, drawDisk("hung", mayEnd|mayStall)},
		{"full disk of", 2, drawDisk("full", mayEnd|mayStall)},
		{"failing syncs of", 2, drawDisk("fails", mayEnd|mayStall)},
	}
}
