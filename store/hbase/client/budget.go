package client

import (
	"context"
	"sync"
)

// budget bounds the bytes that are on their way, over all batches of a client. Those who wait are served in the order
// they came, so that a large request is not passed by small ones for ever.
type budget struct {
	mu      sync.Mutex // guards what follows
	size    int
	free    int
	waiting []*claim
}

// claim is somebody who waits for part of a budget.
type claim struct {
	n       int
	granted chan struct{} // closed when the part is granted
}

func newBudget(size int) *budget { return &budget{size: size, free: size} }

// acquire takes n bytes, or all there are when n is more: what is larger than the budget goes alone. It returns how
// many release has to give back.
func (b *budget) acquire(ctx context.Context, n int) (int, error) {
	n = min(n, b.size)
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return n, nil
	}
	c := &claim{n: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return n, nil
	case <-ctx.Done():
		b.withdraw(c)
		return 0, ctx.Err()
	}
}

func (b *budget) release(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.grant()
}

// grant serves those who wait, first come, as far as it goes.
func (b *budget) grant() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.free {
		b.free -= b.waiting[0].n
		close(b.waiting[0].granted)
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
	}
}

// withdraw takes a claim back, granted in the meantime or not.
func (b *budget) withdraw(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.granted:
		b.free += c.n
	default:
		for i, w := range b.waiting {
			if w == c {
				b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
				break
			}
		}
	}
	b.grant()
}
