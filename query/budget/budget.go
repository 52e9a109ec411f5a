// Package budget bounds the memory that all requests to the read path hold together.
//
// A request has an account, which goes along in its context. Whoever makes something for the request takes bytes from
// the account before, and may give them back; what is left goes back when the request ends, however it ends. Accounts
// take from the budget in steps, so that to take costs nothing mostly.
//
//	0                                                  7/8            total
//	|-- all requests ------------------------------------|-- small only --|
//
// When the budget is used up a request waits, those that began first going first, and is refused in the end. The last
// eighth is for requests that hold little: they are served while large ones wait.
package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	// ErrTooLarge says that one request needs more than any may have. To send it again cannot help.
	ErrTooLarge = errors.New("the request takes too much memory")
	// ErrBusy says that others hold the memory. To send it again later may help.
	ErrBusy = errors.New("too many requests hold memory")

	errClosed = errors.New("the request has ended")
)

// The flags that the errors name.
const (
	flagTotal   = "--query.max-total-memory-bytes"
	flagRequest = "--query.max-memory-bytes"
)

const (
	step = 256 << 10 // what accounts take at a time

	// MinTotal is the least budget: below it the share of the small requests would be less than some of them need.
	MinTotal = 32 << 20

	defaultWait = time.Second
)

// Config says how large a Budget is.
type Config struct {
	Total   int64         // bytes of all requests; at least MinTotal
	Request int64         // bytes of one; 0: as many as the budget has for large ones
	Wait    time.Duration // how long a request may wait for others; default 1 s

	Registerer prometheus.Registerer // may be nil
}

// Budget is the memory of all requests. It is safe for concurrent use.
type Budget struct {
	total, general int64 // general is the part for requests of any size
	small          int64 // what a small request holds at most
	request        int64
	requestFlag    string // that allows one request more
	wait           time.Duration
	maxWaiting     int // small ones that hold something, so that they leave half of their share to others
	refused        *prometheus.CounterVec

	mu      sync.Mutex // guards what follows, and what accounts have of the budget
	held    int64
	running int64     // the part of held whose accounts do not wait
	begun   uint64    // accounts so far
	waiting []*waiter // by the age of their accounts, the oldest first
}

// waiter is a Take that waits.
type waiter struct {
	account *Account
	done    chan struct{} // closed when it is over
	err     error         // valid then
}

// New returns a Budget.
func New(c Config) (*Budget, error) {
	if c.Total < MinTotal {
		return nil, fmt.Errorf("%s is %d bytes, must be %d or more", flagTotal, c.Total, MinTotal)
	}
	if c.Request < 0 {
		return nil, fmt.Errorf("%s is %d bytes, must be 0 or more", flagRequest, c.Request)
	}
	b := &Budget{total: c.Total, general: (c.Total - c.Total/8) / step * step, small: max(1<<20, c.Total/512),
		wait: c.Wait}
	b.request, b.requestFlag = b.general, flagTotal
	if c.Request > 0 && c.Request < b.general {
		b.request, b.requestFlag = c.Request, flagRequest
	}
	if b.wait <= 0 {
		b.wait = defaultWait
	}
	b.maxWaiting = int((b.total - b.general) / 2 / b.small)
	if err := b.register(c.Registerer); err != nil {
		return nil, err
	}
	return b, nil
}

// isSmall says whether an account that gets what it lacks holds little.
func (b *Budget) isSmall(a *Account) bool { return a.reserved.Load()+a.lack() <= b.small }

// move moves bytes of the budget to an account.
func (b *Budget) move(a *Account, n int64) {
	a.reserved.Add(n)
	b.held += n
	if a.waits == 0 {
		b.running += n
	}
}

// grant gives an account what it lacks, if the budget has it.
func (b *Budget) grant(a *Account) bool {
	n := a.lack()
	limit := b.general
	if b.isSmall(a) {
		limit = b.total
	}
	if n > 0 && b.held+n > limit {
		return false
	}
	b.move(a, max(n, 0))
	return true
}

// reserve gives an account what it lacks, or waits until it can.
func (b *Budget) reserve(ctx context.Context, a *Account) error {
	w, err := b.enter(a)
	if w == nil {
		return err
	}
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		b.leave(w, nil)
	case <-ctx.Done():
		b.leave(w, context.Cause(ctx))
	}
	<-w.done
	return w.err
}

// enter gives an account what it lacks, or has it wait: then there is a waiter.
func (b *Budget) enter(a *Account) (*waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case a.closed:
		return nil, errClosed
	case a.refused != nil:
		return nil, a.refused
	case a.used.Load() > b.request:
		b.refuse(a, fmt.Errorf("%w: more than the %d bytes that one may have; ask for less, or raise %s",
			ErrTooLarge, b.request, b.requestFlag))
		return nil, a.refused
	case a.large != nil && !b.isSmall(a):
		f := a.large
		a.large = nil
		if err := f(); err != nil {
			a.refused = err
			return nil, err
		}
	}
	switch {
	case !b.before(a) && b.grant(a):
		return nil, nil
	case len(b.waiting) >= b.maxWaiting && a.reserved.Load() > 0 && a.reserved.Load() <= b.small:
		b.refuse(a, b.busy(fmt.Sprintf("%d wait already", len(b.waiting))))
		return nil, a.refused
	}
	w := &waiter{account: a, done: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(b.waiting, a.age, func(w *waiter, age uint64) int {
		if w.account.age <= age {
			return -1
		}
		return 1
	})
	b.waiting = slices.Insert(b.waiting, at, w)
	if a.waits++; a.waits == 1 {
		b.running -= a.reserved.Load()
	}
	b.serve()
	return w, nil
}

// before says whether an older account waits for what this one would take.
func (b *Budget) before(a *Account) bool {
	return !b.isSmall(a) && len(b.waiting) > 0 && b.waiting[0].account.age < a.age
}

// leave ends a waiter and refuses its account, unless it is over already. No error says that it has waited too long.
func (b *Budget) leave(w *waiter, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.waiting, w) {
		return
	}
	if err == nil {
		err = b.busy(fmt.Sprintf("this one has waited %v", b.wait))
	}
	b.refuse(w.account, err)
	b.serve()
}

// refuse ends all waiters of an account with an error.
func (b *Budget) refuse(a *Account, err error) {
	a.refused = err
	switch {
	case errors.Is(err, ErrBusy):
		b.refused.WithLabelValues(reasonBusy).Inc()
	case errors.Is(err, ErrTooLarge):
		b.refused.WithLabelValues(reasonTooLarge).Inc()
	}
	for _, w := range slices.Clone(b.waiting) {
		if w.account == a {
			b.end(w, err)
		}
	}
}

// end ends a waiter.
func (b *Budget) end(w *waiter, err error) {
	at := slices.Index(b.waiting, w)
	b.waiting = slices.Delete(b.waiting, at, at+1)
	if w.account.waits--; w.account.waits == 0 {
		b.running += w.account.reserved.Load()
	}
	w.err = err
	close(w.done)
}

// serve gives the waiters what there is, and refuses some if those that remain wait only for each other.
func (b *Budget) serve() {
	large := false // an older one waits for the general part
	for _, w := range slices.Clone(b.waiting) {
		small := b.isSmall(w.account)
		if (small || !large) && b.grant(w.account) {
			b.end(w, nil)
		} else {
			large = large || !small
		}
	}
	for len(b.waiting) > 1 && b.stuck() {
		b.refuse(b.victim(), b.busy("those that hold memory wait for each other, and this one began last"))
	}
}

// stuck says that the oldest waiter would not get what it lacks if all who do not wait gave back what they hold.
func (b *Budget) stuck() bool {
	return b.held-b.running+b.waiting[0].account.lack() > b.general
}

// victim is the youngest of the accounts that wait, of those that hold much if there is any but the oldest.
func (b *Budget) victim() *Account {
	for _, w := range slices.Backward(b.waiting[1:]) {
		if w.account != b.waiting[0].account && w.account.reserved.Load() >= b.small {
			return w.account
		}
	}
	return b.waiting[len(b.waiting)-1].account
}

func (b *Budget) busy(why string) error {
	return fmt.Errorf("%w: %d bytes of the %d that %s allows, and %s; ask again later, ask for less, or allow more",
		ErrBusy, b.held, b.total, flagTotal, why)
}
