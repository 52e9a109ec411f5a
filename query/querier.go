package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

// Config is what a Querier needs.
type Config struct {
	Store    store.Store
	Settings catalog.Settings
	Index    *index.Reader
	Buffer   Buffer // nil: no samples are buffered
	// Missing says why samples from mint on may be missing in the store and in the Buffer. It is asked after the Buffer.
	// nil: none are.
	Missing   func(ctx context.Context, mint int64) (warnings []error)
	MaxSeries int // series that one Select may find; 0: no limit

	// Concurrency is how many calls of the store one query makes at a time; default 4.
	Concurrency int
	// Costs are those of the store; default EmbeddedCosts.
	Costs Costs

	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger
}

// Buffer has the buffered samples: those acknowledged and not in the data table yet.
type Buffer interface {
	// Buffered calls f with points of the series with these TSUIDs that may not be in the data table yet. The base times
	// of their rows lie between from and to, both included. i is the TSUID's position. points is a point list (see
	// mapping.AppendPoint) in order of arrival, valid until f returns. f is called by one goroutine at a time, and may
	// be called more than once for one row. The warnings say which samples may be missing, and why.
	Buffered(ctx context.Context, tsuids [][]byte, from, to uint32,
		f func(i int, base uint32, points []byte)) (warnings []error)
}

// Querier answers Selects. It is safe for concurrent use.
type Querier struct {
	Config
	blockPoints int       // maxBlockPoints, less in tests
	forced      method    // byCost but in tests
	blocks      sync.Pool // *block
	pages       sync.Pool // *mapping.Points, of pagePoints
	metrics     metrics
}

const defaultConcurrency = 4

// New returns a Querier. The error is that of registering its metrics.
func New(c Config) (*Querier, error) {
	if c.Concurrency <= 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.Costs == (Costs{}) {
		c.Costs = EmbeddedCosts()
	}
	metrics, err := newMetrics(c.Registerer)
	if err != nil {
		return nil, err
	}
	q := &Querier{Config: c, blockPoints: maxBlockPoints, metrics: metrics}
	q.blocks.New = func() any { return new(block) }
	q.pages.New = func() any {
		return &mapping.Points{T: make([]int64, 0, pagePoints), V: make([]float64, 0, pagePoints)}
	}
	return q, nil
}

// Select finds the series that match all matchers and yields their samples from mint to maxt, inclusive, in
// milliseconds. With labelsOnly it is Series without a limit. ErrLimit says that more series match than MaxSeries. The
// memory of the series and of the samples being read is taken from the account of the context (see budget.From), until
// the set is closed.
func (q *Querier) Select(ctx context.Context, mint, maxt int64, labelsOnly bool, matchers []*labels.Matcher) (SeriesSet,
	error) {
	if labelsOnly {
		return q.Series(ctx, mint, maxt, 0, matchers)
	}
	found, err := q.find(ctx, mint, maxt, 0, matchers)
	if err != nil {
		return nil, err
	}
	s := newSet(ctx, q, found, mint, maxt)
	s.start()
	return s, nil
}

// SelectWindows is Select without the samples outside of the windows, and without the series that have no others. Only
// the hours that windows touch are read. The set ends with ErrHistogram where it meets a native histogram, unless the
// windows are with the sample before each.
func (q *Querier) SelectWindows(
	ctx context.Context, mint, maxt int64, w *Windows, matchers []*labels.Matcher,
) (SeriesSet, error) {
	found, err := q.find(ctx, mint, maxt, 0, matchers)
	if err != nil {
		return nil, err
	}
	s := newSet(ctx, q, found, mint, maxt)
	s.look(w)
	s.start()
	return s, nil
}

// find asks the index, for about as many series as limit says, 0 for all.
func (q *Querier) find(ctx context.Context, mint, maxt int64, limit int, matchers []*labels.Matcher) (index.Result,
	error) {
	found, err := q.Index.Select(ctx, mint, maxt, q.limits(ctx, limit), matchers...)
	if err != nil {
		return found, q.beyondLimits(err, matchers)
	}
	q.metrics.selected(found.AccessPath)
	q.metrics.candidates.Add(float64(found.Candidates))
	q.metrics.series.Add(float64(len(found.Series)))
	return found, nil
}

func (q *Querier) limits(ctx context.Context, limit int) index.Limits {
	take := func(bytes int64) error { return budget.From(ctx).Take(ctx, bytes) }
	return index.Limits{Series: q.MaxSeries, Take: take, Enough: max(limit, 0)}
}

// beyondLimits says which of the index's limits an error is about, if it is about one.
func (q *Querier) beyondLimits(err error, matchers []*labels.Matcher) error {
	switch {
	case errors.Is(err, index.ErrTooMany):
		return fmt.Errorf("%w: more than %d series match %s; narrow the selector, or raise --query.max-series",
			ErrLimit, q.MaxSeries, formatMatchers(matchers))
	case errors.Is(err, budget.ErrTooLarge), errors.Is(err, budget.ErrBusy):
		return fmt.Errorf("find the series that match %s: %w", formatMatchers(matchers), err)
	}
	return err
}

// group is one label set and its series in the store: one, rarely two.
type group struct {
	labels labels.Labels
	series []index.Series
}

// groupByLabels makes groups of sorted series, whose slice they share.
func groupByLabels(found []index.Series) []group {
	groups := make([]group, 0, len(found))
	for from := 0; from < len(found); {
		to := from + 1
		for to < len(found) && labels.Equal(found[to].Labels, found[from].Labels) {
			to++
		}
		groups = append(groups, group{found[from].Labels, found[from:to]})
		from = to
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
