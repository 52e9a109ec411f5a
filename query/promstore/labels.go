package promstore

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// LabelNames returns the names of the labels of the series that match and were active on a day of the range, sorted.
// Like Prometheus, which is as exact as its blocks, it does not look at the samples.
func (q *querier) LabelNames(
	ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return q.collect(ctx, hints, ms, func(ls labels.Labels, add func(string)) {
		ls.Range(func(l labels.Label) { add(l.Name) })
	})
}

// LabelValues returns the values that one label has in those series, sorted.
func (q *querier) LabelValues(
	ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	// Series without the label have nothing to say, and need not be resolved.
	has, err := labels.NewMatcher(labels.MatchNotEqual, name, "")
	if err != nil {
		return nil, nil, err
	}
	return q.collect(ctx, hints, append(slices.Clip(ms), has), func(ls labels.Labels, add func(string)) {
		add(ls.Get(name))
	})
}

// collect gathers texts of the matching series, found by the index alone.
func (q *querier) collect(
	ctx context.Context, hints *storage.LabelHints, ms []*labels.Matcher, texts func(labels.Labels, func(string)),
) ([]string, annotations.Annotations, error) {
	if q.mint > q.maxt {
		return nil, nil, nil
	}
	set, err := q.source.Select(ctx, q.mint, q.maxt, true, ms)
	if err != nil {
		return nil, nil, err
	}
	defer set.Close()
	found := make(map[string]struct{})
	add := func(text string) { found[text] = struct{}{} }
	for set.Next() {
		texts(set.Labels(), add)
	}
	if err := set.Err(); err != nil {
		return nil, nil, err
	}
	out := slices.Sorted(maps.Keys(found))
	if hints != nil && hints.Limit > 0 && len(out) > hints.Limit {
		out = out[:hints.Limit]
	}
	return out, warningsOf(set), nil
}
