package promstore

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// ExemplarSource finds exemplars; query.Querier is one. It may be called by many goroutines at once.
type ExemplarSource interface {
	// Exemplars finds the exemplars from mint to maxt, both inclusive, in milliseconds, of the series that all matchers of
	// any of the selectors match, in order.
	Exemplars(ctx context.Context, mint, maxt int64, selectors ...[]*labels.Matcher) ([]exemplar.QueryResult, error)
}

// ExemplarQueryable is a storage.ExemplarQueryable.
type ExemplarQueryable struct{ Source ExemplarSource }

// ExemplarQuerier returns a querier, whose Selects end with ctx.
func (q ExemplarQueryable) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	return exemplarQuerier{q, ctx}, nil
}

type exemplarQuerier struct {
	ExemplarQueryable
	ctx context.Context
}

func (q exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return q.Source.Exemplars(q.ctx, start, end, matchers...)
}
