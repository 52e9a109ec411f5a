package journal

import (
	"context"
	"fmt"
	"sync"

	"github.com/promtsd/promtsd/store"
)

// Confirm says whether the lease is this writer's, in the store, at a moment after the call began. It must be called
// between making an entry durable and acknowledging it: who takes the journal over does so later then, and finds the
// entry. It needs no clock; concurrent calls share one read of the store. Where no other process can have the store
// open the lease cannot be another's.
func (w *Writer) Confirm(ctx context.Context) error {
	if w.SingleProcess {
		return w.Check()
	}
	return w.reads.ask(ctx)
}

// readLease reads the lease once.
func (w *Writer) readLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.LeaseTTL)
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

// leaseReads makes one read at a time, for all callers that came before it began.
type leaseReads struct {
	read    func() error
	stop    context.CancelFunc // ends the one in flight
	running sync.WaitGroup     // the reads

	mu      sync.Mutex
	reading bool
	next    *readResult // of the read after the one in flight; nil: nobody waits for it
}

// readResult is that of one read.
type readResult struct {
	done chan struct{} // closed when the read has ended
	err  error         // may be read then
}

// ask returns the result of a read that begins after the call.
func (l *leaseReads) ask(ctx context.Context) error {
	l.mu.Lock()
	if l.next == nil {
		l.next = &readResult{done: make(chan struct{})}
	}
	a := l.next
	if !l.reading {
		l.reading = true
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

// run reads until nobody waits.
func (l *leaseReads) run() {
	for {
		l.mu.Lock()
		a := l.next
		l.next, l.reading = nil, a != nil
		l.mu.Unlock()
		if a == nil {
			return
		}
		a.err = l.read()
		close(a.done)
	}
}
