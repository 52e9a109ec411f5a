package budget

import (
	"context"
	"sync/atomic"
)

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

// OnLarge has f called before the account takes for the first time more than what a small request holds. Its error ends
// the request. f must not wait, nor use the budget.
func (a *Account) OnLarge(f func() error) {
	if a == nil {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.large = f
}

// Again returns an account for the same request, which begins again: all that this one has is given back. It is closed
// with this one.
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
