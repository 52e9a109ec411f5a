package adapter

import (
	"net/http"
	"sync"

	"github.com/promtsd/promtsd/adapter/fair"
)

// A bodyBudget bounds bytes that the bodies of many requests hold together, and how many of them those of one client
// hold, see fair.
type bodyBudget struct {
	max   int64
	least int64 // what one request may have, whatever max is

	mu   sync.Mutex // guards what follows
	used int64
	held map[string]int64 // by client
}

// bytes is what is held now.
func (b *bodyBudget) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// lease is for one request, and empty at first.
func (b *bodyBudget) lease(r *http.Request) *lease {
	return &lease{budget: b, client: fair.Client(r.RemoteAddr)}
}

// A lease is the part of a budget that one request holds. It serves one goroutine.
type lease struct {
	budget    *bodyBudget
	client    string
	held      int64
	requested int64 // what it would hold with what it was refused last
}

// take adds n bytes to the lease and reports whether the budget had them for its client. A lease that is the only one
// gets least at least, so that no request which a budget is too small for is sent away again and again.
func (l *lease) take(n int) bool {
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	requested, alone := l.held+int64(n), b.used == l.held
	fits := fair.Share(b.held[l.client]+int64(n), b.max-b.used-int64(n)) || alone && requested <= b.least
	if n > 0 && !fits {
		l.requested = requested
		return false
	}
	l.add(int64(n))
	return true
}

// never says whether what the lease was refused last is more than it would get alone.
func (l *lease) never() bool { return l.requested > max(l.budget.least, l.budget.max*3/4) } // see fair.Share

// release gives back all that was taken.
func (l *lease) release() {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	l.add(-l.held)
}

// add changes what the lease holds.
func (l *lease) add(n int64) {
	b := l.budget
	l.held += n
	b.used += n
	if b.held[l.client] += n; b.held[l.client] == 0 {
		delete(b.held, l.client)
	}
}
