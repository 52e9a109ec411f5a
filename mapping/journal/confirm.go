package journal

import (
	"context"
	"fmt"
	"sync"

	"github.com/promtsd/promtsd/store"
)

// Confirm says whether the lease is this writer's, in the store, at a moment after the call began. It must be asked
// between making an entry durable and acknowledging it: who takes the journal over does so later then, and finds the
// entry. It asks no clock; those who ask at the same time share one look into the store. Where no other process can
// have the store open the lease cannot be another's.
func (w *Writer) Confirm(ctx context.Context) error {
	if w.Alone {
		return w.Check()
	}
	return w.looks.ask(ctx)
}

// look reads the lease once.
func (w *Writer) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.Term)
	defer cancel()
	found, err := Lease{Writer: w.id}.read(ctx, w.Store, w.Tables)
	if err != nil {
		return fmt.Errorf("confirm the lease of writer %s: %w", w.id, err)
	}
	if found == nil || found.Holder != w.id {
		w.lose()
		return fmt.Errorf("confirm the lease of writer %s: %w", w.id, ErrLost)
	}
	return nil
}

// looks makes one look at a time, for all who have asked before it began.
type looks struct {
	look    func() error
	stop    context.CancelFunc // ends the one under way
	running sync.WaitGroup     // the looks

	mu      sync.Mutex
	looking bool
	next    *answer // of the look after the one under way; nil: nobody waits for it
}

// answer is that of a look.
type answer struct {
	done chan struct{} // closed by the one who looks
	err  error         // may be read then
}

// ask returns what a look says that begins after the call.
func (l *looks) ask(ctx context.Context) error {
	l.mu.Lock()
	if l.next == nil {
		l.next = &answer{done: make(chan struct{})}
	}
	a := l.next
	if !l.looking {
		l.looking = true
		l.running.Go(l.run)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

// run looks until nobody waits.
func (l *looks) run() {
	for {
		l.mu.Lock()
		a := l.next
		l.next, l.looking = nil, a != nil
		l.mu.Unlock()
		if a == nil {
			return
		}
		a.err = l.look()
		close(a.done)
	}
}
