// Package promstore is promtsd's data behind Prometheus's own storage interfaces, which is what its query engine and
// its HTTP API work on: Queryable over query.Querier, Appendable over the write path.
package promstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
)

// Querier finds series; query.Querier is one. It may be called by many goroutines at once.
type Querier interface {
	// SelectWindows finds the series that all matchers match, with their samples from mint to maxt, both inclusive, in
	// milliseconds, mint not above maxt, without those outside of the windows; nil for none left out. Where windows are
	// given that are not with the sample before each, and it meets a native histogram, the set ends with
	// query.ErrHistogram.
	SelectWindows(
		ctx context.Context, mint, maxt int64, w *query.Windows, matchers []*labels.Matcher,
	) (query.SeriesSet, error)

	// Series finds series without samples: those that were active on a day of the range. limit is how many suffice, 0 for
	// all.
	Series(ctx context.Context, mint, maxt int64, limit int, matchers []*labels.Matcher) (query.SeriesSet, error)

	// LabelNames and LabelValues find the names of the labels that such series have, and the values of one, sorted.
	LabelNames(ctx context.Context, mint, maxt int64, limit int, matchers []*labels.Matcher) ([]string, error)
	LabelValues(ctx context.Context, name string, mint, maxt int64, limit int, matchers []*labels.Matcher) ([]string,
		error)
}

// Config is what a Queryable needs.
type Config struct {
	Querier Querier // required
}

// Queryable is a storage.SampleAndChunkQueryable. It is safe for concurrent use, and so are its queriers.
//
// Series come sorted by labels, always. Their samples are read when a set moves to them, and held as XOR chunks until
// the consumer lets go of them, because the engine takes all series of a selector before it looks at the first. Their
// memory, and what the engine will make of them, is taken from the account of a Select's context (see budget.From),
// until the querier is closed.
type Queryable struct {
	config Config
}

// New returns a Queryable.
func New(c Config) *Queryable { return &Queryable{c} }

// Querier returns a querier of the samples from mint to maxt, inclusive, in milliseconds.
func (s *Queryable) Querier(mint, maxt int64) (storage.Querier, error) {
	return sampleQuerier{s.querier(mint, maxt)}, nil
}

// ChunkQuerier returns a querier of the same samples in chunks of at most query.MaxChunkSamples, which do not overlap
// and hold nothing outside the range.
func (s *Queryable) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	return chunkQuerier{s.querier(mint, maxt)}, nil
}

func (s *Queryable) querier(mint, maxt int64) *querier {
	return &querier{source: s.config.Querier, mint: mint, maxt: maxt}
}

// querier is what a storage.Querier and a storage.ChunkQuerier have in common.
type querier struct {
	source     Querier
	mint, maxt int64
	taken      atomic.Int64 // bytes of the account

	mu      sync.Mutex // guards what follows
	open    map[*set]struct{}
	closed  bool
	account *budget.Account // of the first Select's context
}

type sampleQuerier struct{ *querier }

func (q sampleQuerier) Select(
	ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher,
) storage.SeriesSet {
	return sampleSet{q.selectSeries(ctx, hints, ms)}
}

type chunkQuerier struct{ *querier }

func (q chunkQuerier) Select(
	ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher,
) storage.ChunkSeriesSet {
	return chunkSet{q.selectSeries(ctx, hints, ms)}
}

// selectSeries heeds of the hints the range, the limit, the shard, the function "series", by which the API says that it
// wants no samples, and the step where an Engine says what it means.
func (q *querier) selectSeries(ctx context.Context, hints *storage.SelectHints, ms []*labels.Matcher) *set {
	s := &set{q: q, ctx: ctx, account: q.accountOf(ctx), mint: q.mint, maxt: q.maxt, matchers: ms}
	if hints != nil {
		s.mint, s.maxt = max(s.mint, hints.Start), min(s.maxt, hints.End)
		s.limit, s.shard, s.shards = hints.Limit, hints.ShardIndex, hints.ShardCount
		s.labelsOnly = hints.Func == "series"
		s.windows = windowsOf(ctx, hints.Step, ms)
		s.result = resultOf(ctx, hints, ms)
	}
	if s.labelsOnly {
		// The API takes the warnings of such a set before its first series.
		s.begin()
	}
	return s
}

// Close ends the sets that are not at their end.
func (q *querier) Close() error {
	q.mu.Lock()
	open, account := q.open, q.account
	q.open, q.closed = nil, true
	q.mu.Unlock()
	for s := range open {
		s.inner.Close()
	}
	account.Give(q.taken.Swap(0))
	return nil
}

// accountOf is the account that all Selects take from. They are of one request.
func (q *querier) accountOf(ctx context.Context) *budget.Account {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.account == nil {
		q.account = budget.From(ctx)
	}
	return q.account
}

// enter notes a set that has to be closed. False says that the querier is closed already.
func (q *querier) enter(s *set) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if q.open == nil {
		q.open = make(map[*set]struct{})
	}
	q.open[s] = struct{}{}
	return true
}

// leave says whether the set still has to be closed, by the caller.
func (q *querier) leave(s *set) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.open[s]
	delete(q.open, s)
	return ok
}

// warningsOf are the warnings of a set as those of the answer: it may lack samples of another promtsd that could not be
// asked.
func warningsOf(set query.SeriesSet) annotations.Annotations {
	var out annotations.Annotations
	for _, warning := range set.Warnings() {
		out.Add(warning)
	}
	return out
}
