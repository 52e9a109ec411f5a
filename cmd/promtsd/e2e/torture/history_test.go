package torture_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// tortureHistory is what the senders of a torture test sent and what became of it, in the order in which that happened:
// each event has a number of its own. Its methods may be called by any goroutine.
type tortureHistory struct {
	mu     sync.Mutex
	events int
	groups map[group][]*chronicle
	named  map[chronicleName]*chronicle
}

// content is what it is about.
type content int

const (
	ofSamples   content = iota // and native histograms
	ofExemplars                // each with its value in a label
	ofMetadata                 // of a family, whose help is the value; at time 0
)

// group is what one sender wrote in one era, of one content: what a reader asks for at a time.
type group struct {
	sender, era int
	content     content
}

// chronicle is one series. Only its sender adds to it.
type chronicle struct {
	group
	labels []prompb.Label
	points map[int64][]claim // by time, in the order of their sending
}

// chronicleName is what tells chronicles apart.
type chronicleName struct {
	content
	labels string
}

func (c *chronicle) name() chronicleName {
	return chronicleName{c.content, remotetest.SortedLabels(c.labels).String()}
}

// claim says that a series has a value at a time. For a histogram the value is its count.
type claim struct {
	value float64
	sent  int // event
	acked int // event; 0 if it is not acknowledged
}

// write is one point of a request.
type write struct {
	series *chronicle
	t      int64
	value  float64
}

func newTortureHistory() *tortureHistory {
	return &tortureHistory{groups: map[group][]*chronicle{}, named: map[chronicleName]*chronicle{}}
}

// add makes a series known.
func (h *tortureHistory) add(g group, labels []prompb.Label) *chronicle {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &chronicle{group: g, labels: labels, points: map[int64][]claim{}}
	h.groups[g] = append(h.groups[g], c)
	h.named[c.name()] = c
	return c
}

// forget drops an era, of which nobody asks any more.
func (h *tortureHistory) forget(era int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g, all := range h.groups {
		if g.era == era {
			for _, c := range all {
				delete(h.named, c.name())
			}
			delete(h.groups, g)
		}
	}
}

// now is a new event; what happens afterwards has a larger number.
func (h *tortureHistory) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	return h.events
}

// sending notes that a request will be sent. To send it once more is no new event.
func (h *tortureHistory) sending(request []write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	for _, w := range request {
		w.series.points[w.t] = append(w.series.points[w.t], claim{value: w.value, sent: h.events})
	}
}

// acknowledged notes that the request that was sent last was.
func (h *tortureHistory) acknowledged(request []write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	for _, w := range request {
		claims := w.series.points[w.t]
		claims[len(claims)-1].acked = h.events
	}
}

// reading is an answer to the question for one group in a range of times.
type reading struct {
	group
	mint, maxt int64 // inclusive
	begun      int   // event before the question
	ended      int   // event after the answer
	whole      bool  // promtsd did not warn that samples may be missing
	series     map[string][]reported
}

// reported is one point of an answer.
type reported struct {
	t     int64
	value float64
}

// check says what is wrong with an answer. It must have every point that was acknowledged before the question, each
// with the value that was sent last by then or since, and no others. With a warning that samples may be missing there
// may be earlier values, too.
func (h *tortureHistory) check(r reading) (problems []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, points := range r.series {
		c := h.named[chronicleName{r.content, name}]
		if c == nil || c.group != r.group {
			problems = append(problems, "ghost: a series that was not sent: "+name)
			continue
		}
		for i, p := range points {
			if i > 0 && p.t <= points[i-1].t {
				problems = append(problems, fmt.Sprintf("order: %s has %d after %d", name, p.t, points[i-1].t))
			}
			if fault := c.check(p, r); fault != "" {
				problems = append(problems, fmt.Sprintf("%s at %d: %s", name, p.t, fault))
			}
		}
	}
	if !r.whole {
		return problems
	}
	for _, c := range h.groups[r.group] {
		name := c.name().labels
		found := r.series[name]
		for t, claims := range c.points {
			if t < r.mint || t > r.maxt || valid(claims, r.begun) < 0 {
				continue
			}
			if _, ok := slices.BinarySearchFunc(found, t, func(p reported, t int64) int { return cmp.Compare(p.t, t) }); !ok {
				problems = append(problems, fmt.Sprintf("loss: %s at %d is missing, want %s", name, t, describeClaims(claims)))
			}
		}
	}
	return problems
}

// check says what is wrong with a point of an answer, nothing if it may be so.
func (c *chronicle) check(p reported, r reading) string {
	claims := c.points[p.t]
	if p.t < r.mint || p.t > r.maxt {
		return fmt.Sprintf("ghost: out of the range from %d to %d", r.mint, r.maxt)
	}
	first := max(valid(claims, r.begun), 0)
	for i, claim := range claims {
		if claim.value != p.value {
			continue
		}
		switch {
		case claim.sent > r.ended:
			return fmt.Sprintf("ghost: %v, which was not sent yet", p.value)
		case i < first && r.whole:
			return fmt.Sprintf("stale: %v, want %s", p.value, describeClaims(claims))
		}
		return ""
	}
	return fmt.Sprintf("ghost: %v, which was never sent: %s", p.value, describeClaims(claims))
}

// valid is the claim that was acknowledged last before an event, -1 if none was.
func valid(claims []claim, before int) int {
	for i := len(claims) - 1; i >= 0; i-- {
		if claims[i].acked > 0 && claims[i].acked < before {
			return i
		}
	}
	return -1
}

// describeClaims shows the last of them.
func describeClaims(claims []claim) string {
	var b strings.Builder
	for _, c := range claims[max(len(claims)-4, 0):] {
		fmt.Fprintf(&b, " %v (sent %d, acknowledged %d)", c.value, c.sent, c.acked)
	}
	return "one of" + b.String()
}
