package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
)

// Config is what a Querier needs.
type Config struct {
	Store      store.Store
	Settings   catalog.Settings
	Index      *index.Reader
	MaxSeries  int                   // series that one Select may find; 0: no limit
	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger
}

// Querier answers Selects. It is safe for concurrent use.
type Querier struct {
	Config
	blockPoints int // maxBlockPoints, less in tests
	metrics     metrics
}

// New returns a Querier.
func New(c Config) *Querier {
	return &Querier{Config: c, blockPoints: maxBlockPoints, metrics: newMetrics(c.Registerer)}
}

// Select finds the series that match all matchers and yields their samples from mint to maxt, inclusive, in
// milliseconds. With labelsOnly it yields the series without samples: those that were active on a day of the range.
// ErrLimit says that more series match than MaxSeries.
func (q *Querier) Select(ctx context.Context, mint, maxt int64, labelsOnly bool, matchers []*labels.Matcher) (SeriesSet, error) {
	found, err := q.Index.Select(ctx, mint, maxt, q.MaxSeries, matchers...)
	if errors.Is(err, index.ErrTooMany) {
		return nil, fmt.Errorf("%w: more than %d series match %s; narrow the selector, or raise --query.max-series",
			ErrLimit, q.MaxSeries, formatMatchers(matchers))
	}
	if err != nil {
		return nil, err
	}
	q.metrics.selects.Inc()
	q.metrics.candidates.Add(float64(found.Candidates))
	q.metrics.series.Add(float64(len(found.Series)))
	groups := groupByLabels(found.Series)
	if labelsOnly {
		return &labelSet{groups: groups, at: -1}, nil
	}
	return newSet(ctx, q, groups, found.Hours, mint, maxt), nil
}

// group is one label set and its TSUIDs: one, rarely two.
type group struct {
	labels labels.Labels
	tsuids [][]byte
}

func groupByLabels(found []index.Series) []group {
	groups := make([]group, 0, len(found))
	for _, s := range found {
		if n := len(groups); n > 0 && labels.Equal(groups[n-1].labels, s.Labels) {
			groups[n-1].tsuids = append(groups[n-1].tsuids, s.TSUID)
			continue
		}
		groups = append(groups, group{labels: s.Labels, tsuids: [][]byte{s.TSUID}})
	}
	return groups
}

func formatMatchers(ms []*labels.Matcher) string {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range ms {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(m.String())
	}
	b.WriteByte('}')
	return b.String()
}

// labelSet is the SeriesSet of a Select for labels only.
type labelSet struct {
	groups []group
	at     int
}

func (s *labelSet) Next() bool              { s.at++; return s.at < len(s.groups) }
func (s *labelSet) Labels() labels.Labels   { return s.groups[s.at].labels }
func (s *labelSet) Points() *mapping.Points { return nil }
func (s *labelSet) Err() error              { return nil }
func (s *labelSet) Close()                  {}
