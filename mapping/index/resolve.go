package index

import (
	"context"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
)

// resolve turns TSUIDs into series with their labels. A TSUID that is malformed, or one of whose UIDs has no name, is
// left out: there is nothing to call it by.
func (r *Reader) resolve(ctx context.Context, tsuids [][]byte) ([]Series, error) {
	size := 0
	for _, tsuid := range tsuids {
		size += len(tsuid)
	}
	slab, found := make([]byte, 0, size), make([]Series, len(tsuids))
	for i, tsuid := range tsuids {
		at := len(slab)
		slab = append(slab, tsuid...)
		found[i].TSUID = slab[at:len(slab):len(slab)]
	}
	unknown := r.labels.fill(found)
	if len(unknown) == 0 {
		return found, nil
	}
	named, err := r.lookUp(ctx, found, unknown)
	if err != nil {
		return nil, err
	}
	r.labels.add(found, named)
	if len(named) < len(unknown) {
		found = slices.DeleteFunc(found, func(s Series) bool { return s.TSUID == nil })
	}
	return found, nil
}

// lookUp fills in the labels of the series at some positions, and returns the positions of those that can be called by
// them. From the others it takes the TSUID away.
func (r *Reader) lookUp(ctx context.Context, found []Series, at []int) (named []int, err error) {
	schema := r.Settings.Schema
	var (
		ids   []uid.ID
		first = make([]int, 0, len(at)+1) // where the ids of each begin, and where the last end
		tags  []mapping.Tag
	)
	for _, i := range at {
		first = append(first, len(ids))
		var metric mapping.UID
		if metric, tags, err = schema.ParseTSUID(found[i].TSUID, tags[:0]); err != nil {
			continue
		}
		ids = append(ids, uid.ID{Kind: mapping.Metric, UID: metric})
		for _, t := range tags {
			ids = append(ids, uid.ID{Kind: mapping.Tagk, UID: t.Key}, uid.ID{Kind: mapping.Tagv, UID: t.Value})
		}
	}
	first = append(first, len(ids))
	texts, err := r.UIDs.Texts(ctx, ids)
	if err != nil {
		return nil, err
	}
	b := labels.NewScratchBuilder(16)
	for n, i := range at {
		var ok bool
		if found[i].Labels, ok = buildLabels(&b, texts[first[n]:first[n+1]]); ok {
			named = append(named, i)
		} else {
			found[i].TSUID = nil
		}
	}
	return named, nil
}

// buildLabels makes labels of the texts of a metric and of its tags, key and value in turn. There are none if one is
// missing.
func buildLabels(b *labels.ScratchBuilder, texts []uid.Text) (labels.Labels, bool) {
	if len(texts) == 0 || slices.ContainsFunc(texts, func(t uid.Text) bool { return !t.OK }) {
		return labels.EmptyLabels(), false
	}
	b.Reset()
	if metric := texts[0].Text; metric != mapping.NoMetric {
		b.Add(model.MetricNameLabel, metric)
	}
	eachTag(texts, b.Add)
	b.Sort()
	ls := b.Labels()
	if _, repeated := ls.HasDuplicateLabelNames(); repeated {
		// Two tagks that read alike, or a repeated tagk: the last one counts, as in OpenTSDB. Sort may have changed
		// their order, so that they are taken from the texts again.
		once := labels.NewBuilder(labels.EmptyLabels())
		once.Set(model.MetricNameLabel, ls.Get(model.MetricNameLabel))
		eachTag(texts, func(name, value string) { once.Set(name, value) })
		ls = once.Labels()
	}
	return ls, true
}

// eachTag calls f with the tags that are labels. A tag that OpenTSDB was given under the metric name's own label is
// none: the row key begins with the metric, and series are found by that.
func eachTag(texts []uid.Text, f func(name, value string)) {
	for i := 1; i < len(texts); i += 2 {
		if name := texts[i].Text; name != mapping.NoTagk && name != model.MetricNameLabel {
			f(name, texts[i+1].Text)
		}
	}
}
