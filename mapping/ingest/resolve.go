package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// draft is a series that is to be made: where its names stand in the list of names to be assigned.
type draft struct {
	position int    // in the request
	sorted   []byte // label bytes with sorted labels and no empty values
	metric   int
	nameless bool
	tags     [][2]int // tagk and tagv
}

// resolve makes the series that the cache does not hold: labels are parsed and checked, the UIDs of all their names
// looked up or assigned together.
func (a *Appender) resolve(
	ctx context.Context, j *job, req *request.Write, ad admission, period uint32, result *request.Result,
) error {
	names := nameList{at: make(map[uid.Name]int)}
	var drafts []draft
	var keys slab
	for _, position := range j.missing {
		keys.left += len(j.lookup.Key(req, position))
	}
	for _, position := range j.missing {
		labels := req.LabelsOf(position)
		ls, reason, err := a.checkLabels(labels, req.NeedMetricName, ad.limits)
		if err != nil {
			result.Refuse(reason, req.SamplesOf(position), fmt.Errorf("series %s: %w", request.FormatSeries(labels), err))
			continue
		}
		drafts = append(drafts, newDraft(position, ls, len(labels), &names))
	}
	assign := a.config.UIDs.Assign
	switch {
	case a.active.full() && !ad.replay:
		assign = a.config.UIDs.Find // series that are active have UIDs
	case len(j.missing) > len(req.Series)/2:
		assign = a.config.UIDs.AssignNewcomer
	}
	uids, err := assign(ctx, names.list)
	if err != nil {
		return err
	}
	made := make(map[string]*memtable.Series) // by sorted labels: a series may stand in the request more than once
	for _, d := range drafts {
		rs := req.Series[d.position]
		s, err := made[string(d.sorted)], error(nil)
		if s == nil {
			s = a.cache.Get(d.sorted)
		}
		unknown := s == nil
		if unknown {
			if s, err = a.build(j, d, uids); err != nil && !errors.Is(err, uid.ErrUnassigned) {
				reason := reasonOf(err)
				if !result.HasExamples() {
					err = fmt.Errorf("series %s: %w", request.FormatSeries(req.LabelsOf(d.position)), err)
				}
				result.Refuse(reason, req.SamplesOf(d.position), err)
				continue
			}
		}
		if err != nil || !a.active.admit(s.TSUID(), period, ad.replay) {
			a.active.refuse(req, d.position, result)
			continue
		}
		if unknown {
			if rs.RefsFrom == rs.RefsTo {
				s = a.cache.Add(keys.clone(d.sorted), s)
			}
			a.metrics.newSeries.Inc()
		}
		if key := j.lookup.Key(req, d.position); !bytes.Equal(key, d.sorted) {
			s = a.cache.Add(keys.clone(key), s)
		}
		made[string(d.sorted)], j.series[d.position] = s, s
	}
	return nil
}

// reasonOf says why a series cannot be built.
func reasonOf(err error) request.Reason {
	switch {
	case errors.Is(err, uid.ErrExhausted):
		return request.ReasonUIDsExhausted
	case errors.Is(err, uid.ErrLimited):
		return request.ReasonNewNames
	case errors.Is(err, mapping.ErrCorrupt):
		return request.ReasonUIDDamaged
	default:
		return request.ReasonInvalidLabels
	}
}

// nameList collects names, each once.
type nameList struct {
	list []uid.Name
	at   map[uid.Name]int
}

func (n *nameList) add(kind mapping.Kind, text string) int {
	name := uid.Name{Kind: kind, Text: text}
	i, ok := n.at[name]
	if !ok {
		i = len(n.list)
		n.list = append(n.list, name)
		n.at[name] = i
	}
	return i
}

// slab holds the keys of a request's new series one behind the other, so that they are compared fast when the series
// come together again. Its blocks are small: each stays in memory as long as any of its series is cached.
type slab struct {
	left int // bytes that are expected
	rest []byte
}

const slabBytes = 4 << 10

func (s *slab) clone(b []byte) []byte {
	if len(b) > len(s.rest) {
		s.rest = make([]byte, max(len(b), min(slabBytes, s.left)))
	}
	s.left -= len(b)
	out := s.rest[:len(b):len(b)]
	s.rest = s.rest[copy(out, b):]
	return out
}

type label struct{ name, value string }

// checkLabels parses label bytes into labels sorted by name, and says what is wrong with them.
func (a *Appender) checkLabels(raw []byte, needName bool, limits Limits) ([]label, request.Reason, error) {
	var ls []label
	reason := request.ReasonInvalidLabels
	err := request.ParseLabels(raw, func(name, value []byte) error {
		switch {
		case len(value) == 0:
			return nil // an empty value is no label
		case len(name) == 0:
			return fmt.Errorf("%w: a label has no name", mapping.ErrInvalid)
		case !utf8.Valid(name) || !utf8.Valid(value):
			return fmt.Errorf("%w: label %.64q: name and value must be UTF-8", mapping.ErrInvalid, name)
		case len(name) > limits.LabelName:
			reason = request.ReasonLabelLimit
			return fmt.Errorf("%w: label name %.64q... has %d bytes, --write.max-label-name-bytes allows %d",
				mapping.ErrInvalid, name, len(name), limits.LabelName)
		case len(value) > limits.LabelValue:
			reason = request.ReasonLabelLimit
			return fmt.Errorf("%w: label %q: its value has %d bytes, --write.max-label-value-bytes allows %d",
				mapping.ErrInvalid, name, len(value), limits.LabelValue)
		}
		ls = append(ls, label{string(name), string(value)})
		return nil
	})
	if err != nil {
		return nil, reason, err
	}
	if len(ls) > limits.Labels {
		return nil, request.ReasonLabelLimit, fmt.Errorf("%w: it has %d labels, --write.max-labels allows %d",
			mapping.ErrInvalid, len(ls), limits.Labels)
	}
	schema := a.config.Settings.Schema
	if row := schema.TagsOffset() + len(ls)*schema.PairWidth(); row > store.MaxRow {
		return nil, request.ReasonLabelLimit, fmt.Errorf(
			"%w: its row key would have %d bytes for %d labels, at most %d can be stored",
			mapping.ErrInvalid, row, len(ls), store.MaxRow)
	}
	slices.SortFunc(ls, func(a, b label) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(ls); i++ {
		if ls[i-1].name == ls[i].name {
			return nil, reason, fmt.Errorf("%w: label %q is there twice", mapping.ErrInvalid, ls[i].name)
		}
	}
	if needName && !slices.ContainsFunc(ls, func(l label) bool { return l.name == model.MetricNameLabel }) {
		return nil, reason, fmt.Errorf("%w: it has no metric name (label __name__)", mapping.ErrInvalid)
	}
	return ls, "", nil
}

// newDraft lists the names of a series, whose label bytes have about that size. Where it has no metric name, or no
// other label, a reserved name stands in.
func newDraft(position int, ls []label, size int, names *nameList) draft {
	d := draft{position: position, metric: -1, sorted: make([]byte, 0, size), tags: make([][2]int, 0, len(ls))}
	for _, l := range ls {
		d.sorted = request.AppendLabel(d.sorted, l.name, l.value)
		if l.name == model.MetricNameLabel {
			d.metric = names.add(mapping.Metric, l.value)
		} else {
			d.tags = append(d.tags, [2]int{names.add(mapping.Tagk, l.name), names.add(mapping.Tagv, l.value)})
		}
	}
	if d.metric < 0 {
		d.nameless = true
		d.metric = names.add(mapping.Metric, mapping.NoMetric)
	}
	if len(d.tags) == 0 {
		d.tags = append(d.tags, [2]int{names.add(mapping.Tagk, mapping.NoTagk), names.add(mapping.Tagv, mapping.NoTagv)})
	}
	return d
}

// build makes the series of a draft whose UIDs are assigned.
func (a *Appender) build(j *job, d draft, uids []uid.Result) (*memtable.Series, error) {
	schema := a.config.Settings.Schema
	tags := make([]mapping.Tag, len(d.tags))
	for i, t := range d.tags {
		for _, result := range []uid.Result{uids[t[0]], uids[t[1]]} {
			if result.Err != nil {
				return nil, result.Err
			}
		}
		tags[i] = mapping.Tag{Key: uids[t[0]].UID, Value: uids[t[1]].UID}
	}
	if err := uids[d.metric].Err; err != nil {
		return nil, err
	}
	schema.SortTags(tags)
	tsuid := schema.AppendTSUID(nil, uids[d.metric].UID, tags)
	j.slot = a.table.NextSlot(j.slot)
	return a.table.NewSeries(j.slot, string(tsuid), d.nameless), nil
}
