// Package budget bounds the memory that all requests to the read path hold together.
//
// A request has an account, which goes along in its context. Whoever makes something for the request takes bytes from the
// account before, and may give them back; what is left goes back when the request ends, however it ends. Accounts take from the
// budget in steps, so that to take costs nothing mostly.
//
//	0                                                  7/8            total
//	|-- all requests ------------------------------------|-- small only --|
//
// When the budget is used up a request waits, those that began first going first, and is refused in the end. The last eighth
// is for requests that hold little: they are served while large ones wait.
package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	flagTotal   = "--query.max-total-memory"
	flagRequest = "--query.max-memory"
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
	b := &Budget{total: c.Total, general: (c.Total - c.Total/8) / step * step, small: max(1<<20, c.Total/512), wait: c.Wait}
	b.request, b.requestFlag = b.general, flagTotal
	if c.Request > 0 && c.Request < b.general {
		b.request, b.requestFlag = c.Request, flagRequest
	}
	if b.wait <= 0 {
		b.wait = defaultWait
	}
	b.maxWaiting = int((b.total - b.general) / 2 / b.small)
	b.register(c.Registerer)
	return b, nil
}

// Account is what one request holds. It is safe for concurrent use. nil is an account without bounds.
type Account struct {
	b        *Budget
	used     atomic.Int64 // of it, at least 0
	reserved atomic.Int64 // what it has of the budget; written under the budget's lock

	// Under the budget's lock.
	age     uint64       // position among all accounts
	waits   int          // Takes that wait
	large   func() error // see OnLarge; nil: none
	again   *Account     // of the request begun again; closed with this one
	refused error        // what a Take that waited ended with: those that follow do the same, and the request ends
	closed  bool
}

// Open returns the account of a request that begins. It has to be closed. A nil Budget has nil accounts.
func (b *Budget) Open() *Account {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	return &Account{b: b, age: b.begun}
}

// OnLarge has f called before the account takes for the first time more than what a small request holds. Its error ends the
// request. f must not wait, nor use the budget.
func (a *Account) OnLarge(f func() error) {
	if a == nil {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.large = f
}

// Again returns an account for the same request, which begins again: all that this one has is given back. It is closed with
// this one.
func (a *Account) Again() *Account {
	if a == nil {
		return nil
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.close()
	a.again = &Account{b: a.b, age: a.age}
	return a.again
}

// Take takes n bytes. Where the budget has them not, it waits; the error is ErrTooLarge, ErrBusy, or the context's.
func (a *Account) Take(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	used := a.used.Add(n)
	if used <= a.reserved.Load() {
		return nil
	}
	if err := a.b.reserve(ctx, a); err != nil {
		a.used.Add(-n)
		return err
	}
	return nil
}

// TryTake takes n bytes if it need not wait for them.
func (a *Account) TryTake(n int64) bool {
	if a == nil {
		return true
	}
	if a.used.Add(n) <= a.reserved.Load() {
		return true
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	ok := !a.closed && a.refused == nil && a.used.Load() <= a.b.request && (a.large == nil || a.b.isSmall(a)) &&
		!a.b.before(a) && a.b.grant(a)
	if !ok {
		a.used.Add(-n)
	}
	return ok
}

// Give gives back n bytes that were taken.
func (a *Account) Give(n int64) {
	if a == nil || n == 0 {
		return
	}
	if used := a.used.Add(-n); a.reserved.Load()-used < 2*step {
		return // they will be taken again
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if excess := -a.lack(); excess > 0 && !a.closed {
		a.b.move(a, -excess)
		a.b.serve()
	}
}

// Close gives back all that is left. Whoever takes afterwards gets an error.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	for ; a != nil; a = a.again {
		a.close()
	}
}

func (a *Account) close() {
	a.b.move(a, -a.reserved.Load())
	a.closed = true
	a.b.serve()
}

func roundUp(n int64) int64 { return (max(n, 0) + step - 1) / step * step }

// lack is what the budget still has to give an account.
func (a *Account) lack() int64 {
	used := a.used.Load()
	return max(used, min(roundUp(used), a.b.request)) - a.reserved.Load()
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

type accountKey struct{}

// NewContext returns a context with an account.
func NewContext(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// From returns the account of a context; nil if it has none.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}
