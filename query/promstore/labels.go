package promstore

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// LabelNames returns the names of the labels of the series that match and were active on a day of the range, sorted.
// Like Prometheus, which is as exact as its blocks, it does not look at the samples; and of more than the limit it
// returns some.
func (q *querier) LabelNames(
	ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	if q.mint > q.maxt {
		return nil, nil, nil
	}
	names, err := q.source.LabelNames(ctx, q.mint, q.maxt, limitOf(hints), ms)
	return names, nil, err
}

// LabelValues returns the values that one label has in those series, sorted.
func (q *querier) LabelValues(
	ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	if q.mint > q.maxt {
		return nil, nil, nil
	}
	values, err := q.source.LabelValues(ctx, name, q.mint, q.maxt, limitOf(hints), ms)
	return values, nil, err
}

func limitOf(hints *storage.LabelHints) int {
	if hints == nil {
		return 0
	}
	return hints.Limit
}
