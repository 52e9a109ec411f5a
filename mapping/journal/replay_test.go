package journal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
)

// crowd is a Replayer that notes how many entries, and bytes of them, it has at a time.
type crowd struct {
	recorder
	read func(body string) error // before its turn

	mu                  sync.Mutex
	entries, bytes      int
	mostEntries, mostOf int
}

func (c *crowd) Replay(ctx context.Context, e *journal.Entry, turn *journal.Turn) error {
	c.mu.Lock()
	c.entries, c.bytes = c.entries+1, c.bytes+len(e.Body)
	c.mostEntries, c.mostOf = max(c.mostEntries, c.entries), max(c.mostOf, c.bytes)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.entries, c.bytes = c.entries-1, c.bytes-len(e.Body)
		c.mu.Unlock()
	}()
	time.Sleep(rand.N(time.Millisecond)) // in whatever order
	if c.read != nil {
		if err := c.read(string(e.Body)); err != nil {
			return err
		}
	}
	return c.recorder.Replay(ctx, e, turn)
}

// most is how many entries there were at a time.
func (c *crowd) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mostEntries
}

func TestTakeOver_ReplaysSeveralAtATimeInTheirOrder(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	var bodies []string
	for i := range 100 {
		bodies = append(bodies, fmt.Sprint("entry ", i))
	}
	write(t, w, bodies...)
	second := make(chan struct{})
	r := &crowd{recorder: recorder{full: 7}}
	r.read = func(body string) error {
		switch body {
		case bodies[0]: // it is held up until the second is there, which hence does not wait for it
			select {
			case <-second:
			case <-time.After(10 * time.Second):
				t.Error("the second entry is not read while the first is")
			}
		case bodies[1]:
			close(second)
		case bodies[50]:
			return &journal.EntryError{Class: journal.Damaged, Err: mapping.ErrCorrupt}
		}
		return nil
	}
	if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if want := slices.Delete(slices.Clone(bodies), 50, 51); !slices.Equal(r.bodies, want) {
		t.Errorf("replayed %q, want %q", r.bodies, want)
	}
	if n := entries(t, st); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestTakeOver_BoundsWhatItReplaysAtATime(t *testing.T) {
	const mib = 1 << 20
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	var bodies []string
	for range 5 {
		bodies = append(bodies, strings.Repeat("x", 3*mib))
	}
	bodies = append(bodies, strings.Repeat("y", 9*mib), "small", strings.Repeat("z", 5*mib))
	write(t, w, bodies...)
	r := &crowd{}
	alone := true
	r.read = func(body string) error {
		for began := time.Now(); r.most() < 2 && time.Since(began) < 10*time.Second; { // until a second one is there
			time.Sleep(time.Millisecond)
		}
		if body[0] == 'y' {
			time.Sleep(10 * time.Millisecond)
			r.mu.Lock()
			alone = r.entries == 1
			r.mu.Unlock()
		}
		return nil
	}
	if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if !slices.Equal(r.bodies, bodies) {
		t.Error("the entries are not those that were written, in their order")
	}
	if !alone || r.mostOf > 9*mib || r.most() < 2 {
		t.Errorf("at most %d entries with %d bytes were replayed at a time; the one of 9 MiB alone: %v", r.most(), r.mostOf,
			alone)
	}
}

// After an entry that could not be replayed none is placed: those after it may have replaced values of it.
func TestTakeOver_PlacesNothingAfterAFailure(t *testing.T) {
	for round := range 20 {
		st := newStore(t)
		w := openWriter(t, config(st, time.Minute))
		var bodies []string
		for i := range 30 {
			bodies = append(bodies, fmt.Sprint("entry ", i))
		}
		write(t, w, bodies...)
		failed := errors.New("no answer")
		r := &crowd{}
		r.read = func(body string) error {
			if body == bodies[round] {
				return failed
			}
			return nil
		}
		if ok, err := takeOver(t, st, leases(t, st)[0], r); ok || !errors.Is(err, failed) {
			t.Fatalf("take over: %v, %v", ok, err)
		}
		if len(r.bodies) > round || !slices.Equal(r.bodies, bodies[:len(r.bodies)]) || r.finished {
			t.Errorf("entry %d failed, and %q were placed, stored: %v", round, r.bodies, r.finished)
		}
		if n := entries(t, st); n != len(bodies) {
			t.Errorf("%d of %d entries are left", n, len(bodies))
		}
		next := &recorder{}
		if ok, err := takeOverAs(t, st, leases(t, st)[0], 8, next); !ok || err != nil || !slices.Equal(next.bodies, bodies) {
			t.Errorf("the next holder: %v, %v, replayed %q", ok, err, next.bodies)
		}
	}
}

// torn is a store whose scans of the journal fail after some rows.
type torn struct {
	store.Store
	rows int
}

func (s torn) Scan(ctx context.Context, scan store.Scan) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		n := 0
		for row, err := range s.Store.Scan(ctx, scan) {
			if n++; scan.Table == journalTable && n > s.rows {
				yield(store.Row{}, store.ErrUnavailable)
				return
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// When a takeover has failed, nothing of it goes on: the store may be closed then.
func TestTakeOver_WaitsForAllWhenItFails(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	for i := range 40 {
		write(t, w, fmt.Sprint("entry ", i))
	}
	r := &crowd{recorder: recorder{full: 3}}
	var returned, late atomic.Bool
	r.read = func(string) error {
		time.Sleep(3 * time.Millisecond)
		late.CompareAndSwap(false, returned.Load())
		return nil
	}
	if ok, err := takeOver(t, torn{st, 35}, leases(t, st)[0], r); ok || !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("take over: %v, %v, want ErrUnavailable", ok, err)
	}
	returned.Store(true)
	time.Sleep(20 * time.Millisecond)
	if r.stored == 0 || late.Load() {
		t.Errorf("after %d were stored it failed, and more were replayed after it had returned: %v", r.stored, late.Load())
	}
}
