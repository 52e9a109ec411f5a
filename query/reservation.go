package query

import (
	"context"

	"github.com/promtsd/promtsd/query/budget"
)

// reservation is memory that one part of a query has taken from the query's account.
type reservation struct {
	account *budget.Account
	bytes   int64
}

// take adds to it.
func (r *reservation) take(ctx context.Context, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if r.account == nil {
		r.account = budget.From(ctx)
	}
	err := r.account.Take(ctx, bytes)
	if err == nil {
		r.bytes += bytes
	}
	return err
}

// tryTake adds to it, unless that would have to wait.
func (r *reservation) tryTake(ctx context.Context, bytes int64) bool {
	if r.account == nil {
		r.account = budget.From(ctx)
	}
	ok := r.account.TryTake(bytes)
	if ok {
		r.bytes += bytes
	}
	return ok
}

// setTo makes it so many.
func (r *reservation) setTo(ctx context.Context, bytes int64) error {
	if bytes < r.bytes {
		r.account.Give(r.bytes - bytes)
		r.bytes = bytes
		return nil
	}
	return r.take(ctx, bytes-r.bytes)
}

// giveBack gives all of it back. It may be called again.
func (r *reservation) giveBack() {
	r.account.Give(r.bytes)
	*r = reservation{}
}

const pointBytes = 16 // of mapping.Points
