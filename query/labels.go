package query

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/query/budget"
)

// Series yields the series, without samples, that match and were active on a day of the range, or some of them if there
// are more than limit; 0 is no limit. ErrLimit says that there are more than MaxSeries, unless the limit is lower.
// Their memory is taken from the account of the context, until the set is closed.
func (q *Querier) Series(ctx context.Context, mint, maxt int64, limit int, matchers []*labels.Matcher) (SeriesSet,
	error) {
	found, err := q.find(ctx, mint, maxt, limit, matchers)
	if err != nil {
		return nil, err
	}
	groups := groupByLabels(found.Series)
	if limit > 0 && len(groups) > limit {
		groups = groups[:limit]
	}
	return &labelSet{groups: groups, at: -1, reservation: reservation{budget.From(ctx), found.Bytes}}, nil
}

// LabelNames returns the names of the labels that such series have, sorted, or some of them if there are more than
// limit. MaxSeries does not matter, as the series are not held. The memory of the names is taken from the account of
// the context.
func (q *Querier) LabelNames(
	ctx context.Context, mint, maxt int64, limit int, matchers []*labels.Matcher,
) ([]string, error) {
	names, path, err := q.Index.LabelNames(ctx, mint, maxt, q.limits(ctx, limit), matchers...)
	if err != nil {
		return nil, q.beyondLimits(err, matchers)
	}
	q.metrics.selected(path)
	return first(names, limit), nil
}

// LabelValues returns the values of a label in the same way.
func (q *Querier) LabelValues(
	ctx context.Context, name string, mint, maxt int64, limit int, matchers []*labels.Matcher,
) ([]string, error) {
	values, path, err := q.Index.LabelValues(ctx, name, mint, maxt, q.limits(ctx, limit), matchers...)
	if err != nil {
		return nil, q.beyondLimits(err, matchers)
	}
	q.metrics.selected(path)
	return first(values, limit), nil
}

// What a Querier counts.
type (
	Cardinality = index.Cardinality
	Count       = index.Count
)

// Cardinality counts the series that were active on a day of the range, and their labels; most bounds each list of the
// answer. What counting them takes is taken from the account of the context.
func (q *Querier) Cardinality(ctx context.Context, mint, maxt int64, most int) (Cardinality, error) {
	counted, path, err := q.Index.Cardinality(ctx, mint, maxt, q.limits(ctx, 0), most)
	if err != nil {
		return Cardinality{}, q.beyondLimits(err, nil)
	}
	q.metrics.selected(path)
	return counted, nil
}

func first(texts []string, limit int) []string {
	if limit > 0 && len(texts) > limit {
		return texts[:limit]
	}
	return texts
}

// labelSet is the SeriesSet of series without samples.
type labelSet struct {
	groups []group
	at     int
	reservation
}

func (s *labelSet) Next() bool              { s.at++; return s.at < len(s.groups) }
func (s *labelSet) Labels() labels.Labels   { return s.groups[s.at].labels }
func (s *labelSet) Points() *mapping.Points { return nil }
func (s *labelSet) Err() error              { return nil }
func (s *labelSet) Warnings() []error       { return nil }
func (s *labelSet) Close()                  { s.giveBack() }
