package index

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/mapping/uid"
)

// Names and values of labels are found as UIDs, in postings or in TSUIDs, and the text of each is looked up once. The
// labels of a series are never made: memory grows with the names or values there are, and not with the series.

const (
	textBytes = 64 // that a UID and its text take besides the text's bytes
	textTimes = 4  // how many times the text's bytes are taken: answers are made of them
)

// LabelNames returns the names of the labels that series have which Select would find, sorted. It looks at those of
// which Select cannot make the labels, too, as a UID has no name.
func (r *Reader) LabelNames(
	ctx context.Context, mint, maxt int64, limits Limits, matchers ...*labels.Matcher,
) ([]string, AccessPath, error) {
	s, err := r.newSelection(ctx, mint, maxt, limits, matchers)
	if err != nil || s == nil {
		return nil, AccessNone, err
	}
	noMetric, err := r.UIDs.Lookup(ctx, []uid.Name{{Kind: mapping.Metric, Text: mapping.NoMetric}})
	if err != nil {
		return nil, AccessNone, err
	}
	c := newCollector(s, mapping.Tagk, func(text string) bool {
		return text != mapping.NoTagk && text != model.MetricNameLabel
	})
	named := false // whether any has a metric with a name
	if s.access == AccessMemory && len(matchers) == 0 {
		named = c.namesFromPostings(noMetric[0])
	} else {
		isNamed := func(tsuid []byte) bool { return !slices.Contains(noMetric[0], s.p.metricOf(tsuid)) }
		err = c.fromSeries(ctx, func(tsuid []byte) {
			named = named || isNamed(tsuid)
			s.p.eachTag(tsuid, func(key, _ mapping.UID) { c.meet(key) })
		}, func(tsuid []byte) bool {
			isNew := !named && isNamed(tsuid)
			s.p.eachTag(tsuid, func(key, _ mapping.UID) { isNew = isNew || !c.met[key] })
			return isNew
		})
	}
	texts, err := c.result(ctx, err)
	if named && err == nil {
		at, _ := slices.BinarySearch(texts, model.MetricNameLabel)
		texts = slices.Insert(texts, at, model.MetricNameLabel)
	}
	return texts, s.access, err
}

// LabelValues returns the values that a label has in the series that LabelNames looks at, sorted.
func (r *Reader) LabelValues(
	ctx context.Context, name string, mint, maxt int64, limits Limits, matchers ...*labels.Matcher,
) ([]string, AccessPath, error) {
	s, err := r.newSelection(ctx, mint, maxt, limits, matchers)
	if err != nil || s == nil || name == mapping.NoTagk {
		return nil, AccessNone, err
	}
	v := valuesOf{value: s.p.metricOf}
	kind := mapping.Metric
	if name != model.MetricNameLabel {
		found, err := r.UIDs.Lookup(ctx, []uid.Name{{Kind: mapping.Tagk, Text: name}})
		if err != nil || len(found[0]) == 0 {
			return nil, AccessNone, err
		}
		kind, v.keys = mapping.Tagv, found[0]
		v.value = func(tsuid []byte) mapping.UID { return tagvOf(r.Settings.Schema, tsuid, v.keys) }
	}
	alone := !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name != name })
	c := newCollector(s, kind, func(text string) bool {
		return (kind != mapping.Metric || text != mapping.NoMetric) && (!alone || matchesAll(matchers, text))
	})
	done := false
	if s.access == AccessMemory {
		done, err = c.valuesFromPostings(ctx, v, alone)
	}
	if !done && err == nil {
		err = c.fromSeries(ctx, func(tsuid []byte) { c.meet(v.value(tsuid)) }, func(tsuid []byte) bool {
			value := v.value(tsuid)
			return value != 0 && !c.met[value]
		})
	}
	texts, err := c.result(ctx, err)
	return texts, s.access, err
}

// valuesOf is a label of which the values are asked for.
type valuesOf struct {
	keys  []mapping.UID // its tagks; none for the metric name
	value func(tsuid []byte) mapping.UID
}

// collector gathers the texts of UIDs of one kind.
type collector struct {
	s     *selection
	kind  mapping.Kind
	keep  func(text string) bool // false: it is not asked for
	met   map[mapping.UID]bool
	fresh []uid.ID // met, and not looked up yet
	texts []string
}

func newCollector(s *selection, kind mapping.Kind, keep func(text string) bool) *collector {
	return &collector{s: s, kind: kind, keep: keep, met: make(map[mapping.UID]bool)}
}

// meet takes in a UID; 0 is none.
func (c *collector) meet(u mapping.UID) {
	if u != 0 && !c.met[u] {
		c.met[u] = true
		c.fresh = append(c.fresh, uid.ID{Kind: c.kind, UID: u})
	}
}

// lookUp finds the texts of what was met. It returns errEnough when there are enough.
func (c *collector) lookUp(ctx context.Context) error {
	for page := range slices.Chunk(c.fresh, pageSize) {
		texts, err := c.s.r.UIDs.Texts(ctx, page)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if text.OK && c.keep(text.Text) {
				c.texts = append(c.texts, text.Text)
			}
			if err := c.s.take(textBytes + textTimes*len(text.Text)); err != nil {
				return err
			}
		}
	}
	c.fresh = c.fresh[:0]
	if n := c.s.limits.Enough; n > 0 && len(c.texts) >= n && len(c.sorted()) >= n {
		return errEnough
	}
	return nil
}

// sorted are the texts, each once: two UIDs may read alike.
func (c *collector) sorted() []string {
	slices.Sort(c.texts)
	c.texts = slices.Compact(c.texts)
	return c.texts
}

// result are the texts when all is met, or enough, or err has ended it.
func (c *collector) result(ctx context.Context, err error) ([]string, error) {
	if err == nil {
		err = c.lookUp(ctx)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("read series index: %w", err)
	}
	return c.sorted(), nil
}

// fromSeries gathers what look meets in the TSUIDs of the series selected. wanted says whether there is anything new in
// one.
func (c *collector) fromSeries(ctx context.Context, look func(tsuid []byte), wanted func(tsuid []byte) bool) error {
	c.s.wanted = wanted
	c.s.each = func(ctx context.Context, matched [][]byte, _ []postings.Days) error {
		for _, tsuid := range matched {
			look(tsuid)
		}
		return c.lookUp(ctx)
	}
	_, err := c.s.run(ctx)
	return err
}

// namesFromPostings gathers the tagks of which the memory has active series, and says whether any has a metric with a
// name.
func (c *collector) namesFromPostings(noMetric []mapping.UID) (named bool) {
	for _, key := range c.s.postings.ActiveTagks(c.s.dayRun()) {
		c.meet(key)
	}
	return c.s.postings.HasOtherMetric(noMetric, c.s.dayRun())
}

const (
	// worthListing: the values of a label are looked for by postings if they are so many times fewer than the candidates:
	// series that have one are then found soon, or not at all.
	worthListing = 64
	// valuesPage is how many values are looked for at a time.
	valuesPage = 1024
)

// valuesFromPostings gathers the values of which the memory has active series that pass; any do, if the matchers are on
// the label alone. Where it is not worth it, it is not done.
func (c *collector) valuesFromPostings(ctx context.Context, of valuesOf, alone bool) (done bool, err error) {
	s := c.s
	among, most := s.postings.All(), math.MaxInt
	if !alone {
		if among, err = s.intersect(ctx); err != nil {
			return false, err
		}
		most = among.Len() / worthListing
	}
	values, few := s.postings.Values(of.keys, most)
	if !few || !alone && !s.p.isComplete() {
		return false, nil
	}
	several := len(of.keys) > 1 || s.postings.HasRepeats() // a series may have several values
	passes := func(tsuid []byte, value mapping.UID) bool {
		return (alone || s.p.passes(tsuid)) && (!several || of.value(tsuid) == value)
	}
	if alone && !several {
		passes = nil
	}
	var found []mapping.UID
	for len(values) > 0 {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		n := min(len(values), valuesPage, s.pageSize)
		found = s.postings.ActiveValues(found[:0], of.keys, values[:n], among, s.dayRun(), passes)
		values = values[n:]
		for _, value := range found {
			c.meet(value)
		}
		if len(c.fresh) < s.pageSize {
			continue
		}
		if err := c.lookUp(ctx); err != nil {
			return true, err
		}
		s.pageSize = min(pageSize, 2*s.pageSize)
	}
	return true, nil
}
