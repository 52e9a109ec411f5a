package index

import (
	"context"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
)

// resolve turns TSUIDs into labels. A TSUID that is malformed, or one of whose UIDs has no name, is left out: there is
// nothing to call it by.
func (r *Reader) resolve(ctx context.Context, tsuids [][]byte) ([]Series, error) {
	schema := r.Settings.Schema
	bytes, count := 0, 0
	for _, tsuid := range tsuids {
		bytes += len(tsuid)
		count += 1 + 2*len(tsuid)/schema.PairWidth()
	}
	var (
		ids   = make([]uid.ID, 0, count)
		first = make([]int, 0, len(tsuids)) // where each TSUID's ids begin; -1 for a malformed one
		tags  []mapping.Tag
		slab  = make([]byte, 0, bytes)
	)
	for _, tsuid := range tsuids {
		metric, parsed, err := schema.ParseTSUID(tsuid, tags[:0])
		if err != nil {
			first = append(first, -1)
			continue
		}
		tags = parsed
		first = append(first, len(ids))
		ids = append(ids, uid.ID{Kind: mapping.Metric, UID: metric})
		for _, t := range tags {
			ids = append(ids, uid.ID{Kind: mapping.Tagk, UID: t.Key}, uid.ID{Kind: mapping.Tagv, UID: t.Value})
		}
	}
	texts, err := r.UIDs.Texts(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]Series, 0, len(tsuids))
	b := labels.NewScratchBuilder(16)
	for i, tsuid := range tsuids {
		if first[i] < 0 {
			continue
		}
		pairs := (len(tsuid) - schema.MetricWidth) / schema.PairWidth()
		if ls, ok := buildLabels(&b, texts[first[i]:first[i]+1+2*pairs]); ok {
			at := len(slab)
			slab = append(slab, tsuid...)
			out = append(out, Series{TSUID: slab[at:len(slab):len(slab)], Labels: ls})
		}
	}
	return out, nil
}

// buildLabels makes labels of the texts of a metric and of its tags, key and value in turn.
func buildLabels(b *labels.ScratchBuilder, texts []uid.Text) (labels.Labels, bool) {
	for _, t := range texts {
		if !t.OK {
			return labels.EmptyLabels(), false
		}
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
