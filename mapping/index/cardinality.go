package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/mapping/uid"
)

// Cardinality counts series that were active on some days, and their labels. Of each list there are the largest, those
// first.
type Cardinality struct {
	Series int
	Pairs  int // of a label and a value

	SeriesByMetric []Count
	ValuesByLabel  []Count
	BytesByLabel   []Count // that the names and values would take in the labels of the series
	SeriesByPair   []Count // label=value
}

// Count is a number of something.
type Count struct {
	Name string
	N    uint64
}

// pairBytes is what counting a label and a value takes.
const pairBytes = 64

// Cardinality counts the series that were active on a day from mint to maxt; most bounds each list. Names that read
// alike and have several UIDs, and repeated tags, are counted as often as there are.
func (r *Reader) Cardinality(ctx context.Context, mint, maxt int64, limits Limits, most int) (Cardinality, AccessPath,
	error) {
	s, err := r.newSelection(ctx, mint, maxt, limits, nil)
	if err != nil || s == nil {
		return Cardinality{}, AccessNone, err
	}
	t := tally{s: s, tags: make(map[mapping.UID]map[mapping.UID]int)}
	if s.access == AccessMemory {
		err = t.countPostings(ctx)
	} else {
		err = t.countSeries(ctx)
	}
	if err != nil {
		return Cardinality{}, s.access, fmt.Errorf("read series index: %w", err)
	}
	out, err := t.sum(ctx, most)
	return out, s.access, err
}

// tally is how many series have each value of a tag, and each metric.
type tally struct {
	s    *selection
	tags map[mapping.UID]map[mapping.UID]int // by tagk, 0 for the metric, then tagv
}

func (t *tally) countPostings(ctx context.Context) error {
	for _, key := range append(t.s.postings.Tagks(), 0) {
		t.tags[key] = t.s.postings.CountByValue(key, t.s.dayRun())
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.s.take(len(t.tags[key]) * pairBytes); err != nil {
			return err
		}
	}
	return nil
}

func (t *tally) countSeries(ctx context.Context) error {
	t.s.once = true
	t.s.each = func(_ context.Context, matched [][]byte, _ []postings.Days) error {
		taken := 0
		count := func(key, value mapping.UID) {
			if t.tags[key] == nil {
				t.tags[key] = make(map[mapping.UID]int)
			}
			before := len(t.tags[key])
			t.tags[key][value]++
			taken += (len(t.tags[key]) - before) * pairBytes
		}
		for _, tsuid := range matched {
			count(0, t.s.p.metricOf(tsuid))
			t.s.p.eachTag(tsuid, count)
		}
		return t.s.take(taken)
	}
	_, err := t.s.run(ctx)
	return err
}

// sum names what was counted.
func (t *tally) sum(ctx context.Context, most int) (Cardinality, error) {
	var out Cardinality
	metrics, values, bytes, pairs := largest{most: most}, largest{most: most}, largest{most: most}, largest{most: most}
	for key, counts := range t.tags {
		name, kind := model.MetricNameLabel, mapping.Metric
		if key != 0 {
			kind = mapping.Tagv
			texts, err := t.s.r.UIDs.Texts(ctx, []uid.ID{{Kind: mapping.Tagk, UID: key}})
			if err != nil {
				return Cardinality{}, err
			}
			if name = texts[0].Text; !texts[0].OK || name == mapping.NoTagk || name == model.MetricNameLabel {
				continue
			}
		}
		n, size := 0, uint64(0)
		err := t.eachText(ctx, kind, counts, func(text string, series int) {
			if kind == mapping.Metric {
				out.Series += series
				if text == mapping.NoMetric {
					return
				}
				metrics.add(uint64(series), text)
			}
			n++
			size += labels.SizeOfLabels(name, text, uint64(series))
			pairs.add(uint64(series), name, "=", text)
		})
		if err != nil {
			return Cardinality{}, err
		}
		if n > 0 {
			out.Pairs += n
			values.add(uint64(n), name)
			bytes.add(size, name)
		}
	}
	out.SeriesByMetric, out.ValuesByLabel, out.BytesByLabel, out.SeriesByPair = metrics.cut(), values.cut(), bytes.cut(),
		pairs.cut()
	return out, nil
}

// eachText calls f with the texts of UIDs, page by page.
func (t *tally) eachText(
	ctx context.Context, kind mapping.Kind, counts map[mapping.UID]int, f func(text string, series int),
) error {
	ids := make([]uid.ID, 0, min(len(counts), pageSize))
	page := func() error {
		texts, err := t.s.r.UIDs.Texts(ctx, ids)
		for i, text := range texts {
			if text.OK {
				f(text.Text, counts[ids[i].UID])
			}
		}
		ids = ids[:0]
		return err
	}
	for value := range counts {
		if ids = append(ids, uid.ID{Kind: kind, UID: value}); len(ids) == pageSize {
			if err := page(); err != nil {
				return err
			}
		}
	}
	return page()
}

// largest are the largest of some counts.
type largest struct {
	most   int
	counts []Count
	least  uint64 // below which none is among them
}

func (l *largest) add(n uint64, name ...string) {
	if n < l.least {
		return
	}
	if l.counts = append(l.counts, Count{strings.Join(name, ""), n}); len(l.counts) >= 2*l.most+64 {
		l.cut()
	}
}

func (l *largest) cut() []Count {
	slices.SortFunc(l.counts, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	if len(l.counts) > l.most {
		l.counts = l.counts[:l.most]
		l.least = l.counts[l.most-1].N
	}
	return l.counts
}
