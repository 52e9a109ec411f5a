package mapping_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/mapping"
)

// queryRequest is the body of a query, as far as it is evaluated here.
type queryRequest struct {
	Start        int64      `json:"start"`
	End          int64      `json:"end"`
	MsResolution bool       `json:"msResolution"`
	ShowTSUIDs   bool       `json:"showTSUIDs"`
	Queries      []subQuery `json:"queries"`
}

type subQuery struct {
	Aggregator    string          `json:"aggregator"`
	Metric        string          `json:"metric"`
	TSUIDs        []string        `json:"tsuids"`
	Filters       []tagFilter     `json:"filters"`
	ExplicitTags  bool            `json:"explicitTags"`
	Downsample    string          `json:"downsample"`
	Percentiles   json.RawMessage `json:"percentiles"`
	ShowHistogram bool            `json:"showHistogramBuckets"`
	RollupUsage   string          `json:"rollupUsage"`
}

type tagFilter struct {
	Type    string `json:"type"`
	Tagk    string `json:"tagk"`
	Filter  string `json:"filter"`
	GroupBy bool   `json:"groupBy"`
}

var errAggregated = errors.New("several series aggregated into one")

// parseGoldenQuery gives the reason if the query is to be left out.
func parseGoldenQuery(query goldenQuery) (q queryRequest, leaveOut string) {
	if query.Method != "POST" {
		return q, "query in a URL"
	}
	if err := json.Unmarshal(query.Request, &q); err != nil {
		return q, "request of another form"
	}
	if q.Start == 0 || len(q.Queries) == 0 || q.End != 0 && q.End < q.Start {
		return q, "request without sense"
	}
	for _, s := range q.Queries {
		switch {
		case s.Downsample != "":
			return q, "downsampled"
		case s.Percentiles != nil || s.ShowHistogram:
			return q, "of histograms"
		case s.RollupUsage != "":
			return q, "of rollup tables"
		case s.Aggregator != "none" && s.Aggregator != "sum" && s.Aggregator != "max":
			return q, "no aggregator of that name"
		}
	}
	return q, ""
}

// String is how goldenExceptions names the query.
func (q queryRequest) String() string {
	var parts []string
	for _, s := range q.Queries {
		text := s.Aggregator + ":" + s.Metric
		for _, f := range s.Filters {
			text += "{" + f.Tagk + "=" + f.Type + "(" + f.Filter + ")}"
		}
		if s.ExplicitTags {
			text += "!"
		}
		parts = append(parts, text+strings.Join(s.TSUIDs, ","))
	}
	return strings.Join(parts, " ")
}

func (q queryRequest) evaluate(s mapping.Schema, tables *goldenTables) (goldenAnswer, error) {
	answer := goldenAnswer{}
	for _, sub := range q.Queries {
		e := queryEvaluation{
			queryRequest: q, sub: sub, schema: s, tables: tables,
			points: map[string]*mapping.Points{}, groups: map[string]int{},
		}
		if err := e.run(answer); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// queryEvaluation answers one sub-query from the cells.
type queryEvaluation struct {
	queryRequest
	sub     subQuery
	schema  mapping.Schema
	tables  *goldenTables
	points  map[string]*mapping.Points // by TSUID
	groups  map[string]int             // series in each group
	decoder mapping.RowDecoder
}

func (e *queryEvaluation) run(answer goldenAnswer) error {
	var metric []byte
	if len(e.sub.TSUIDs) == 0 {
		id, ok := e.tables.id(mapping.Metric, e.sub.Metric)
		if !ok {
			return fmt.Errorf("unknown metric %q", e.sub.Metric)
		}
		metric = id
	}
	for _, f := range e.sub.Filters {
		if err := e.checkFilter(f); err != nil {
			return err
		}
	}
	mint, maxt := toMs(e.Start), int64(math.MaxInt64)
	if e.End != 0 {
		maxt = toMs(e.End)
	}
	for _, row := range e.tables.rows {
		if err := e.addRow([]byte(row), metric, mint, maxt); err != nil {
			return err
		}
	}
	for tsuid, points := range e.points {
		if err := e.addSeries(answer, []byte(tsuid), points); err != nil {
			return err
		}
	}
	for _, n := range e.groups {
		if e.sub.Aggregator != "none" && n > 1 {
			return errAggregated
		}
	}
	return nil
}

// toMs reads a time of a query, which is in seconds if it fits into 32 bits.
func toMs(t int64) int64 {
	if t < 1<<32 {
		return t * 1000
	}
	return t
}

// checkFilter refuses names that OpenTSDB would not find.
func (e *queryEvaluation) checkFilter(f tagFilter) error {
	if _, ok := e.tables.id(mapping.Tagk, f.Tagk); !ok {
		return fmt.Errorf("unknown tagk %q", f.Tagk)
	}
	if f.Type == "literal_or" {
		for _, v := range strings.Split(f.Filter, "|") {
			if _, ok := e.tables.id(mapping.Tagv, v); !ok {
				return fmt.Errorf("unknown tagv %q", v)
			}
		}
	}
	return nil
}

// addRow decodes a row if it is of the query. Rows that are damaged count only if there are no filters, with which
// OpenTSDB does not see them either.
func (e *queryEvaluation) addRow(row, metric []byte, mint, maxt int64) error {
	s := e.schema
	if metric != nil && !bytes.HasPrefix(row[min(s.SaltWidth, len(row)):], metric) {
		return nil
	}
	tsuid, base, err := s.AppendRowTSUID(nil, row)
	if err != nil {
		if len(e.sub.Filters) > 0 || metric == nil {
			return nil
		}
		return err
	}
	if int64(base)*1000 < mint-mint%mapping.HourMs || int64(base)*1000 > maxt {
		return nil
	}
	if metric == nil && !slices.Contains(e.sub.TSUIDs, fmt.Sprintf("%X", tsuid)) {
		return nil
	}
	if !e.hasKeys(tsuid) {
		return nil
	}
	if tags, err := e.tags(tsuid); err != nil {
		return err
	} else if !e.matches(tags) {
		return nil
	}
	e.decoder.Reset(base)
	for _, c := range e.tables.cells[string(row)] {
		if err := e.decoder.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
			if !errors.Is(err, mapping.ErrCorrupt) {
				return fmt.Errorf("error of no class: %w", err)
			}
			return err
		}
	}
	if e.points[string(tsuid)] == nil {
		e.points[string(tsuid)] = &mapping.Points{}
	}
	e.decoder.AppendPoints(e.points[string(tsuid)], mint, maxt)
	return nil
}

func (e *queryEvaluation) pairs(tsuid []byte) (pairs [][2][]byte) {
	s := e.schema
	for b := tsuid[s.MetricWidth:]; len(b) > 0; b = b[s.PairWidth():] {
		pairs = append(pairs, [2][]byte{b[:s.TagkWidth], b[s.TagkWidth:s.PairWidth()]})
	}
	return pairs
}

// hasKeys tells whether the series has the tags that filters ask for, and no others if they ask that.
func (e *queryEvaluation) hasKeys(tsuid []byte) bool {
	keys := map[string]bool{}
	for _, p := range e.pairs(tsuid) {
		keys[string(p[0])] = true
	}
	wanted := map[string]bool{}
	for _, f := range e.sub.Filters {
		id, _ := e.tables.id(mapping.Tagk, f.Tagk)
		wanted[string(id)] = true
		if !keys[string(id)] {
			return false
		}
	}
	return !e.sub.ExplicitTags || len(wanted) == len(keys)
}

func (e *queryEvaluation) tags(tsuid []byte) (map[string]string, error) {
	tags := map[string]string{}
	for _, p := range e.pairs(tsuid) {
		key, ok := e.tables.label(mapping.Tagk, p[0])
		if !ok {
			return nil, fmt.Errorf("unknown tagk UID %x", p[0])
		}
		value, ok := e.tables.label(mapping.Tagv, p[1])
		if !ok {
			return nil, fmt.Errorf("unknown tagv UID %x", p[1])
		}
		tags[key] = value
	}
	return tags, nil
}

func (e *queryEvaluation) matches(tags map[string]string) bool {
	return !slices.ContainsFunc(e.sub.Filters, func(f tagFilter) bool { return !f.matches(tags[f.Tagk]) })
}

func (f tagFilter) matches(value string) bool {
	filter, negative := strings.CutPrefix(f.Type, "not_")
	pattern := f.Filter
	if insensitive, ok := strings.CutPrefix(filter, "i"); ok {
		filter, pattern, value = insensitive, strings.ToLower(pattern), strings.ToLower(value)
	}
	var match bool
	switch filter {
	case "literal_or":
		match = slices.Contains(strings.Split(pattern, "|"), value)
	case "wildcard":
		match, _ = path.Match(pattern, strings.ReplaceAll(value, "/", "_"))
	case "regexp":
		match = regexp.MustCompile(pattern).MatchString(value)
	default:
		panic("filter " + f.Type)
	}
	return match != negative
}

func (e *queryEvaluation) addSeries(answer goldenAnswer, tsuid []byte, points *mapping.Points) error {
	metric, ok := e.tables.label(mapping.Metric, tsuid[:e.schema.MetricWidth])
	if !ok {
		return fmt.Errorf("unknown metric UID %x", tsuid[:e.schema.MetricWidth])
	}
	tags, err := e.tags(tsuid)
	if err != nil {
		return err
	}
	dps := map[int64]float64{}
	for i, t := range points.T {
		if !e.MsResolution {
			t /= 1000 // of several points in a second, the last remains
		}
		dps[t] = points.V[i]
	}
	var group strings.Builder
	for _, f := range e.sub.Filters {
		if f.GroupBy {
			fmt.Fprintf(&group, "%q=%q ", f.Tagk, tags[f.Tagk])
		}
	}
	if len(dps) > 0 {
		e.groups[group.String()]++
	}
	if !e.ShowTSUIDs {
		tsuid = nil
	}
	answer.add(metric, tags, tsuid, dps)
	return nil
}
