package index

import (
	"context"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// predicate is a set of matchers in terms of UIDs: which metrics, and for each tagk that a matcher names which tagvs.
// A tagv is tested once, by its text; where the matcher lists its values, not even that: their UIDs are looked up.
// A predicate serves one Select.
type predicate struct {
	schema   mapping.Schema
	uids     *uid.Registry
	matchers []*labels.Matcher
	metrics  []mapping.UID // ascending; nil: any metric
	tags     []*tagTest
	matched  [][]byte // of the latest page
}

// tagTest is the matchers of one label, which may have several tagk UIDs.
type tagTest struct {
	keys     []mapping.UID
	matchers []*labels.Matcher
	absent   bool                 // what to say of a series without this tag
	closed   bool                 // matched lists all tagvs that match: any other fails
	complete bool                 // they do so for the series in memory: any other need not pass
	matched  map[mapping.UID]bool // by tagv
}

// newPredicate returns nil, without an error, if no series can match. metrics lists the UIDs of all metrics that there
// are; where it is nil, they are found by their names.
func (r *Reader) newPredicate(
	ctx context.Context, matchers []*labels.Matcher, metrics func() []mapping.UID,
) (*predicate, error) {
	p := &predicate{schema: r.Settings.Schema, uids: r.UIDs, matchers: matchers}
	byLabel := map[string][]*labels.Matcher{}
	for _, m := range matchers {
		byLabel[m.Name] = append(byLabel[m.Name], m)
	}
	if ms := byLabel[model.MetricNameLabel]; ms != nil {
		resolved, err := p.resolveMetrics(ctx, ms, metrics)
		if err != nil || len(resolved) == 0 {
			return nil, err
		}
		p.metrics = resolved
		delete(byLabel, model.MetricNameLabel)
	}
	var keys []uid.Name
	for label := range byLabel {
		keys = append(keys, uid.Name{Kind: mapping.Tagk, Text: label})
	}
	slices.SortFunc(keys, func(a, b uid.Name) int { return len(byLabel[b.Text]) - len(byLabel[a.Text]) })
	keyUIDs, err := p.uids.Lookup(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		t := &tagTest{keys: keyUIDs[i], matchers: byLabel[key.Text], matched: map[mapping.UID]bool{}}
		t.absent = matchesAll(t.matchers, "")
		if len(t.keys) == 0 || key.Text == mapping.NoTagk {
			if !t.absent {
				return nil, nil // no series has this label
			}
			continue
		}
		if err := t.closeByValues(ctx, p.uids); err != nil {
			return nil, err
		}
		if t.closed && len(t.matched) == 0 && !t.absent {
			return nil, nil // no series has one of these values
		}
		p.tags = append(p.tags, t)
	}
	return p, nil
}

func matchesAll(ms []*labels.Matcher, value string) bool {
	for _, m := range ms {
		if !m.Matches(value) {
			return false
		}
	}
	return true
}

// listed returns the values that a matcher allows, if it lists them: m="v" or m=~"a|b".
func listed(m *labels.Matcher) ([]string, bool) {
	switch m.Type {
	case labels.MatchEqual:
		return []string{m.Value}, true
	case labels.MatchRegexp:
		set := m.SetMatches()
		return set, len(set) > 0
	default:
		return nil, false
	}
}

// closeByValues decides the test by UIDs alone if one of its matchers lists its values.
func (t *tagTest) closeByValues(ctx context.Context, uids *uid.Registry) error {
	for _, m := range t.matchers {
		values, ok := listed(m)
		if !ok {
			continue
		}
		var names []uid.Name
		for _, v := range values {
			if v != "" && matchesAll(t.matchers, v) {
				names = append(names, uid.Name{Kind: mapping.Tagv, Text: v})
			}
		}
		found, err := uids.Lookup(ctx, names)
		if err != nil {
			return err
		}
		for _, us := range found {
			for _, u := range us {
				t.matched[u] = true
			}
		}
		t.closed = true
		return nil
	}
	return nil
}

// resolveMetrics returns the UIDs of the metrics whose name passes all matchers, ascending.
func (p *predicate) resolveMetrics(
	ctx context.Context, ms []*labels.Matcher, metrics func() []mapping.UID,
) ([]mapping.UID, error) {
	var (
		out []mapping.UID
		ids []uid.ID
	)
	if matchesAll(ms, "") {
		none, err := p.uids.Lookup(ctx, []uid.Name{{Kind: mapping.Metric, Text: mapping.NoMetric}})
		if err != nil {
			return nil, err
		}
		out = append(out, none[0]...)
	}
	for _, m := range ms {
		values, ok := listed(m)
		if !ok {
			continue
		}
		var names []uid.Name
		for _, v := range values {
			if v != "" && matchesAll(ms, v) {
				names = append(names, uid.Name{Kind: mapping.Metric, Text: v})
			}
		}
		found, err := p.uids.Lookup(ctx, names)
		if err != nil {
			return nil, err
		}
		for _, us := range found {
			out = append(out, us...)
		}
		return sorted(out), nil
	}
	if metrics != nil {
		for _, u := range metrics() {
			ids = append(ids, uid.ID{Kind: mapping.Metric, UID: u})
		}
		texts, err := p.uids.Texts(ctx, ids)
		if err != nil {
			return nil, err
		}
		for i, text := range texts {
			if text.OK && text.Text != mapping.NoMetric && matchesAll(ms, text.Text) {
				out = append(out, ids[i].UID)
			}
		}
		return sorted(out), nil
	}
	for entry, err := range p.uids.Search(ctx, mapping.Metric, literalPrefix(ms)) {
		if err != nil {
			return nil, err
		}
		if entry.Text != mapping.NoMetric && matchesAll(ms, entry.Text) {
			out = append(out, entry.UID)
		}
	}
	return sorted(out), nil
}

// literalPrefix is what all texts that pass begin with, as far as the matchers tell.
func literalPrefix(ms []*labels.Matcher) (longest string) {
	for _, m := range ms {
		if prefix := m.Prefix(); m.Type == labels.MatchRegexp && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return longest
}

func sorted(us []mapping.UID) []mapping.UID {
	slices.Sort(us)
	return slices.Compact(us)
}

// metricRanges are the ranges of keys that begin with prefix and the UID of a wanted metric.
func (p *predicate) metricRanges(prefix []byte) []store.Range {
	if p.metrics == nil {
		if len(prefix) == 0 {
			return nil
		}
		return []store.Range{store.PrefixRange(prefix)}
	}
	var out []store.Range
	for _, m := range p.metrics {
		start := p.schema.AppendUID(slices.Clone(prefix), mapping.Metric, m)
		out = append(out, store.PrefixRange(start))
	}
	return out
}

// isComplete says whether passes is right about series in memory as it is.
func (p *predicate) isComplete() bool {
	return !slices.ContainsFunc(p.tags, func(t *tagTest) bool { return !t.closed && !t.complete })
}

// match returns those TSUIDs of a page (end to end, each up to its end) that pass, until its next call. It reads the
// texts of tagvs that it has not tested yet, all at once.
func (p *predicate) match(ctx context.Context, page []byte, ends []int) ([][]byte, error) {
	if err := p.test(ctx, page, ends); err != nil {
		return nil, err
	}
	p.matched = p.matched[:0]
	start := 0
	for _, end := range ends {
		tsuid := page[start:end]
		start = end
		if p.passes(tsuid) {
			p.matched = append(p.matched, tsuid)
		}
	}
	return p.matched, nil
}

// test makes sure that every tagv of the page that a test has to know is matched.
func (p *predicate) test(ctx context.Context, page []byte, ends []int) error {
	var values []mapping.UID
	for _, t := range p.tags {
		if t.closed {
			continue
		}
		values = values[:0]
		start := 0
		for _, end := range ends {
			value := t.value(p.schema, page[start:end])
			start = end
			if _, tested := t.matched[value]; !tested && value != 0 {
				t.matched[value] = false // and once is enough
				values = append(values, value)
			}
		}
		if err := t.test(ctx, p.uids, values); err != nil {
			return err
		}
	}
	return nil
}

// test matches tagvs, by their texts.
func (t *tagTest) test(ctx context.Context, uids *uid.Registry, values []mapping.UID) error {
	ids := make([]uid.ID, len(values))
	for i, v := range values {
		ids[i] = uid.ID{Kind: mapping.Tagv, UID: v}
	}
	texts, err := uids.Texts(ctx, ids)
	if err != nil {
		return err
	}
	for i, text := range texts {
		t.matched[values[i]] = text.OK && matchesAll(t.matchers, text.Text)
	}
	return nil
}

// passes is false for a malformed TSUID, too: there is nothing to call it by.
func (p *predicate) passes(tsuid []byte) bool {
	width := p.schema.MetricWidth
	if len(tsuid) < width || (len(tsuid)-width)%p.schema.PairWidth() != 0 {
		return false
	}
	if p.metrics != nil {
		if _, wanted := slices.BinarySearch(p.metrics, p.metricOf(tsuid)); !wanted {
			return false
		}
	}
	for _, t := range p.tags {
		value := t.value(p.schema, tsuid)
		if value == 0 && !t.absent || value != 0 && !t.matched[value] {
			return false
		}
	}
	return true
}

func (t *tagTest) value(s mapping.Schema, tsuid []byte) mapping.UID { return tagvOf(s, tsuid, t.keys) }

// tagvOf returns the tagv of any of some tagks in a TSUID, 0 if it has none. Of a repeated tagk the last one counts, as
// in OpenTSDB.
func tagvOf(s mapping.Schema, tsuid []byte, keys []mapping.UID) (found mapping.UID) {
	width := s.PairWidth()
	for tags := tsuid[min(s.MetricWidth, len(tsuid)):]; len(tags) >= width; tags = tags[width:] {
		key, _ := s.ParseUID(mapping.Tagk, tags[:s.TagkWidth])
		if slices.Contains(keys, key) {
			found, _ = s.ParseUID(mapping.Tagv, tags[s.TagkWidth:width])
		}
	}
	return found
}

// metricOf is the metric of a TSUID that passes.
func (p *predicate) metricOf(tsuid []byte) mapping.UID {
	u, _ := p.schema.ParseUID(mapping.Metric, tsuid[:p.schema.MetricWidth])
	return u
}

// eachTag calls f with the tags of a TSUID that passes.
func (p *predicate) eachTag(tsuid []byte, f func(key, value mapping.UID)) {
	s := p.schema
	for tags := tsuid[s.MetricWidth:]; len(tags) > 0; tags = tags[s.PairWidth():] {
		key, _ := s.ParseUID(mapping.Tagk, tags[:s.TagkWidth])
		value, _ := s.ParseUID(mapping.Tagv, tags[s.TagkWidth:s.PairWidth()])
		f(key, value)
	}
}

func (p *predicate) matchesLabels(ls labels.Labels) bool {
	for _, m := range p.matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}
