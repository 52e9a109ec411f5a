package client

import (
	"context"
	"sync"
	"time"
)

// limiter bounds how many do something at once.
type limiter chan struct{}

func newLimiter(n int) limiter { return make(limiter, n) }

// acquire waits until there are fewer.
func (l limiter) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acquireBy is acquire until a deadline, for less than a context of its own.
func (l limiter) acquireBy(ctx context.Context, deadline time.Time) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case l <- struct{}{}:
		return nil
	case <-t.C:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l limiter) release() { <-l }

// limits bounds how many do something at once at each of many places, of which it knows only those where somebody does.
type limits struct {
	each int

	mu   sync.Mutex // guards busy, and the users of each
	busy map[string]*place
}

// place is one where somebody does something, or waits to.
type place struct {
	limiter
	users int
}

func newLimits(each int) *limits { return &limits{each: each, busy: make(map[string]*place)} }

// acquireBy waits until there are fewer at a place. Who has got in calls leave.
func (l *limits) acquireBy(ctx context.Context, name string, deadline time.Time) (leave func(), err error) {
	l.mu.Lock()
	p := l.busy[name]
	if p == nil {
		p = &place{limiter: newLimiter(l.each)}
		l.busy[name] = p
	}
	p.users++
	l.mu.Unlock()
	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(l.busy, name)
		}
	}
	if err := p.acquireBy(ctx, deadline); err != nil {
		gone()
		return nil, err
	}
	return func() {
		p.release()
		gone()
	}, nil
}
