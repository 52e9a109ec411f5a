package api

import (
	"context"
	"errors"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/query/budget"
)

// gate bounds the queries that run at a time, and those of one client. Some of its places are for small queries only,
// so that those are answered while large ones run, and wait for memory:
//
//	| any query               | small            |
//	|<- busy(), 3/4 at most ->|<- 1/4 at least ->|
//
// That a query is large is known beforehand (queryCost), or when it has taken more memory than a small one may. Then it
// goes on if there is a place for large ones; else it gives up its place and its memory, and begins again when there
// is.
//
// gate is a promql.QueryTracker, so that the engine's metrics tell of the time in its queue. A query waits when it is
// executed, and not when it is parsed, which is bounded by itself.
type gate struct {
	places *fair.Places
	large  *fair.Places // those of them that large queries may have
}

func newGate(places int) gate {
	return gate{fair.NewPlaces(places), fair.NewPlaces(max(1, min(places-max(1, places/4), busy())))}
}

// errBeginAgain ends a query that turned out to be large when there was no place for large ones.
var errBeginAgain = errors.New("the query is large, and waits for others")

// turn is a query's stay in a gate.
type turn struct {
	gate    gate
	client  string
	account *budget.Account
	bytes   int64 // that it takes before it begins
	isLarge bool
	entered bool
}

type turnKey struct{}

// enter waits for a place.
func (t *turn) enter(ctx context.Context) error {
	if t.isLarge {
		if t.gate.large.Enter(ctx, t.client) != nil {
			return ctx.Err()
		}
	}
	if t.gate.places.Enter(ctx, t.client) != nil {
		if t.isLarge {
			t.gate.large.Leave(t.client)
		}
		return ctx.Err()
	}
	t.entered = true
	return nil
}

// becomeLarge says that the query in it is large. errBeginAgain says that it has to leave, and enter again.
func (t *turn) becomeLarge() error {
	if t.isLarge {
		return nil
	}
	if !t.gate.large.TryEnter(t.client) {
		return errBeginAgain
	}
	t.isLarge = true
	return nil
}

// leave gives the place back.
func (t *turn) leave() {
	if !t.entered {
		return
	}
	if t.gate.places.Leave(t.client); t.isLarge {
		t.gate.large.Leave(t.client)
	}
	t.entered = false
}

// GetMaxConcurrent is how many queries there may be.
func (g gate) GetMaxConcurrent() int { return g.places.Most() }

// Insert waits for a place for the query whose turn is in the context; boundedQuery gives it back.
func (g gate) Insert(ctx context.Context, _ string) (int, error) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return 0, nil // it is parsed
	}
	if err := t.enter(ctx); err != nil {
		return 0, timeError(err, "query queue")
	}
	return 0, t.account.Take(ctx, t.bytes)
}

// Delete does nothing.
func (g gate) Delete(int) {}

// Close does nothing.
func (g gate) Close() error { return nil }
