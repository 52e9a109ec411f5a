package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Peer is another promtsd on the store.
type Peer struct {
	Name   string
	URL    string // where it serves, scheme and host; empty: it cannot be asked
	Writer string // whose samples are asked for there; no two have the same
	Note   string // why it cannot be asked
}

const (
	maxAsked    = 16 // peers that one call of Buffered asks at a time
	maxWarnings = 8  // of one call of Buffered
)

// Group is what all promtsd on a store hold. It is safe for concurrent use.
type Group struct {
	Local Buffer // this process
	// Peers lists the others, as of now; with an error those that are known all the same.
	Peers  func(ctx context.Context) ([]Peer, error)
	Client *http.Client // must not follow redirects
	// Timeout is for all that one peer answers to one call of Buffered, and MaxBytes bounds it. The call takes twice as
	// long at most.
	Timeout  time.Duration
	MaxBytes int64

	mu      sync.Mutex      // guards failing
	failing map[string]bool // writers that did not answer when they were last asked: others are asked before
}

// Buffered implements query.Buffer. Peers are asked several at a time; one that does not answer is a warning. Within a
// request (see Remember) it is asked no more; and none is asked for hours below all that it holds.
func (g *Group) Buffered(
	ctx context.Context, tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte),
) (warnings []error) {
	peers, err := g.Peers(ctx)
	if err != nil {
		warnings = append(warnings, fmt.Errorf("samples of the last minutes may be missing: %w", err))
	}
	c := newCall(tsuids, from, to, f)
	known := memoryOf(ctx)
	queue := make(chan Peer, len(peers))
	for _, p := range g.inTurn(peers) {
		if skip, failure := known.answerKnown(p.Writer, to); failure != nil {
			warnings = append(warnings, failure)
		} else if !skip {
			queue <- p
		}
	}
	close(queue)
	asking, cancel := context.WithTimeout(ctx, 2*g.Timeout)
	defer cancel()
	var workers sync.WaitGroup
	for range min(len(queue), maxAsked) {
		workers.Go(func() {
			for p := range queue {
				tooLate := asking.Err() != nil
				oldest, err := g.ask(asking, p, c)
				if !tooLate {
					g.recordResult(p, err)
				}
				if err != nil {
					c.fail(p, err)
				} else {
					known.hold(p.Writer, oldest)
				}
			}
		})
	}
	c.mu.Lock()
	warnings = append(warnings, g.Local.Buffered(ctx, tsuids, from, to, f)...)
	c.mu.Unlock()
	workers.Wait()
	warnings = append(warnings, g.missing(ctx, known, c.failed)...)
	if more := len(warnings) - maxWarnings; more > 0 {
		warnings = append(warnings[:maxWarnings:maxWarnings],
			fmt.Errorf("samples that %d more promtsd hold are missing", more))
	}
	return warnings
}

// inTurn are the peers in the order in which they are asked.
func (g *Group) inTurn(peers []Peer) []Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.failing, func(writer string, _ bool) bool { return !contains(peers, writer) })
	var first, last []Peer
	for _, p := range peers {
		if g.failing[p.Writer] {
			last = append(last, p)
		} else {
			first = append(first, p)
		}
	}
	return append(first, last...)
}

// recordResult notes whether a peer has answered.
func (g *Group) recordResult(p Peer, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		delete(g.failing, p.Writer)
		return
	}
	if g.failing == nil {
		g.failing = map[string]bool{}
	}
	g.failing[p.Writer] = true
}

func contains(peers []Peer, writer string) bool {
	return slices.ContainsFunc(peers, func(p Peer) bool { return p.Writer == writer })
}

// missing are the failures that matter, given by writer. One whose lease is gone meanwhile has ended, or was replaced,
// and all its samples are in the data table.
func (g *Group) missing(ctx context.Context, known *memory, failed map[string]error) (warnings []error) {
	if len(failed) == 0 {
		return nil
	}
	left, err := g.Peers(ctx)
	for _, writer := range slices.Sorted(maps.Keys(failed)) {
		if err != nil || contains(left, writer) {
			known.fail(writer, failed[writer])
			warnings = append(warnings, failed[writer])
		}
	}
	return warnings
}

// call is one of Buffered.
type call struct {
	tsuids    [][]byte // ascending
	positions []int    // that they were given in
	from, to  uint32

	mu     sync.Mutex // guards what follows
	f      func(i int, base uint32, points []byte)
	failed map[string]error // by writer
}

func newCall(tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte)) *call {
	c := &call{positions: make([]int, len(tsuids)), from: from, to: to, f: f, failed: map[string]error{}}
	for i := range c.positions {
		c.positions[i] = i
	}
	slices.SortFunc(c.positions, func(a, b int) int { return bytes.Compare(tsuids[a], tsuids[b]) })
	for _, i := range c.positions {
		c.tsuids = append(c.tsuids, tsuids[i])
	}
	return c
}

// found has f take a row of the TSUID at a position among the sorted ones.
func (c *call) found(i int, base uint32, points []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.f(c.positions[i], base, points)
}

// fail notes why a peer has not answered.
func (c *call) fail(p Peer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[p.Writer] = fmt.Errorf("samples that the promtsd %s holds are missing: %w", p.Name, err)
}

// ask asks a peer, in as many requests as it takes.
func (g *Group) ask(ctx context.Context, p Peer, c *call) (oldest uint32, err error) {
	if p.URL == "" {
		return 0, errors.New(p.Note)
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	left := g.MaxBytes
	for at := (place{0, c.from}); at.i < len(c.tsuids); {
		n := fitting(c.tsuids[at.i:])
		q := question{c.from, c.to, at.base, c.tsuids[at.i : at.i+n]}
		var next place
		next, oldest, err = g.askOnce(ctx, p, q, &left, func(i int, base uint32,
			points []byte) {
			c.found(at.i+i, base, points)
		})
		if err != nil {
			return 0, err
		}
		at = place{at.i + next.i, next.base}
	}
	return oldest, nil
}

// askOnce asks a peer one question. next is what has to be asked next, counted from the question's first TSUID; left is
// how many bytes the peer may still answer.
func (g *Group) askOnce(
	ctx context.Context, p Peer, q question, left *int64, f func(i int, base uint32, points []byte),
) (next place, oldest uint32, err error) {
	res, err := send(ctx, g.Client, p.URL, p.Writer, q)
	if err != nil {
		return next, 0, err
	}
	defer res.Body.Close()
	body := &io.LimitedReader{R: res.Body, N: *left}
	defer func() {
		if *left = body.N; err != nil && body.N <= 0 {
			err = fmt.Errorf("it answers more than %d bytes", g.MaxBytes)
		}
	}()
	a, err := readAnswer(bufio.NewReader(body), q)
	if err != nil {
		return next, 0, err
	}
	for {
		at, points, err := a.row()
		if err != nil || points == nil {
			return at, a.oldest, err
		}
		f(at.i, at.base, points)
	}
}

// Probe asks the promtsd at an address for a writer's samples of no series: whether it could be asked. An answer with
// another status than 200 is a StatusError.
func Probe(ctx context.Context, client *http.Client, address, writer string) error {
	res, err := send(ctx, client, address, writer, question{})
	if err == nil {
		res.Body.Close()
	}
	return err
}

// send asks for what a writer holds.
func send(ctx context.Context, client *http.Client, address, writer string, q question) (*http.Response, error) {
	target := address + Path + "?" + url.Values{writerParam: {writer}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(q.append(nil)))
	if err != nil {
		return nil, err
	}
	res, err := client.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return nil, failed.Err // whom it was sent to the reader is told anyway
	}
	if err == nil && res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		res.Body.Close()
		return nil, &StatusError{res.StatusCode, fmt.Sprintf("it answers %s: %s", res.Status, bytes.TrimSpace(text))}
	}
	return res, err
}

// StatusError is an answer with another status than 200.
type StatusError struct {
	Code int
	text string
}

func (e *StatusError) Error() string { return e.text }
