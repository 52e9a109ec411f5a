package adapter

import "sync"

// A bodyBudget bounds bytes that the bodies of many requests hold together.
type bodyBudget struct {
	max int64

	mu   sync.Mutex // guards used
	used int64
}

// bytes is what is held now.
func (b *bodyBudget) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// A lease is the part of a budget that one request holds. It serves one goroutine.
type lease struct {
	budget *bodyBudget
	held   int64
}

// take adds n bytes to the lease and reports whether the budget had them. A lease that is the only one gets whatever it
// asks for, so that a request larger than the budget is not sent away again and again.
func (l *lease) take(n int) bool {
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+int64(n) > b.max && b.used > l.held {
		return false
	}
	b.used += int64(n)
	l.held += int64(n)
	return true
}

// release gives back all that was taken.
func (l *lease) release() {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	l.budget.used -= l.held
	l.held = 0
}
