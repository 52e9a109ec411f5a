package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/query/budget"
)

// boundedEngine makes queries that end in time. It refuses those whose subqueries have too many steps: the module's engine
// makes lists of that length before it looks at any limit, and does not look at its context while a function goes over the
// points of one series.
type boundedEngine struct {
	promql.QueryEngine
	maxSteps int
}

// pointsPerStep says how many points the functions over subqueries may look at in each series, for each step that all
// subqueries may have. A hundred million take a second, and some functions twenty times as long.
const pointsPerStep = 100

func (e boundedEngine) NewInstantQuery(
	ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, ts time.Time,
) (promql.Query, error) {
	query, err := e.QueryEngine.NewInstantQuery(ctx, q, opts, text, ts)
	return e.judge(ctx, query, err)
}

func (e boundedEngine) NewRangeQuery(
	ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start, end time.Time, step time.Duration,
) (promql.Query, error) {
	query, err := e.QueryEngine.NewRangeQuery(ctx, q, opts, text, start, end, step)
	return e.judge(ctx, query, err)
}

// judge has a query that costs too much, or waited for its turn until its time was over, end with an error as soon as it is
// executed: so the answer is 422, or 503, as for the module's own limits. An error of NewQuery is always answered 400.
func (e boundedEngine) judge(ctx context.Context, query promql.Query, err error) (promql.Query, error) {
	if ctx.Err() != nil {
		return refusedQuery{err: timeError(ctx.Err(), "query queue")}, nil
	}
	if err != nil {
		return nil, err
	}
	stmt, ok := query.Statement().(*parser.EvalStmt)
	if !ok {
		return query, nil
	}
	var c subqueryCost
	c.add(stmt.Expr, evaluation{span: float64(stmt.End.Sub(stmt.Start)), interval: float64(stmt.Interval)})
	switch {
	case c.steps > float64(e.maxSteps):
		err = fmt.Errorf("%w: its subqueries have %.3g steps, --query.max-subquery-steps allows %d: ask for a shorter range "+
			"or a larger step", bounds.ErrTooComplex, c.steps, e.maxSteps)
	case c.points > float64(e.maxSteps)*pointsPerStep:
		err = fmt.Errorf("%w: functions over its subqueries look at %.3g points of each series, --query.max-subquery-steps=%d "+
			"allows %.3g: ask for fewer steps", bounds.ErrTooComplex, c.points, e.maxSteps, float64(e.maxSteps)*pointsPerStep)
	default:
		return boundedQuery{query, int64(c.steps) * stepBytes}, nil
	}
	return refusedQuery{err: err}, nil
}

// refusedQuery is a query that fails. Of the rest of the interface it has nothing.
type refusedQuery struct {
	promql.Query
	err error
}

func (q refusedQuery) Exec(context.Context) *promql.Result { return &promql.Result{Err: q.err} }
func (q refusedQuery) Close()                              {}

// boundedQuery is a query whose memory is taken from its account: what the engine makes of series that are read, whoever reads
// them takes; so that here its subqueries are left, which need no series, and the answer. It names the end of its time as
// Prometheus does, wherever it was met: in the store it is an error of the store's.
type boundedQuery struct {
	promql.Query
	bytes int64 // of its subqueries
}

func (q boundedQuery) Exec(ctx context.Context) *promql.Result {
	account := budget.From(ctx)
	if err := account.Take(ctx, q.bytes); err != nil {
		return &promql.Result{Err: err}
	}
	result := q.Query.Exec(ctx)
	if result.Err == nil {
		result.Err = account.Take(ctx, answerBytes(result.Value))
	}
	result.Err = timeError(result.Err, "query execution")
	return result
}

// timeError is the module's own error for a context that has ended, and any other error as it is.
func timeError(err error, where string) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return promql.ErrQueryTimeout(where)
	case errors.Is(err, context.Canceled):
		return promql.ErrQueryCanceled(where)
	}
	return err
}

// evaluation says at which times the engine evaluates an expression: in nanoseconds, as floats, which do not overflow.
type evaluation struct {
	span     float64 // from the first to the last
	interval float64 // 0: there is one
}

func (e evaluation) steps() float64 {
	if e.interval <= 0 {
		return 1
	}
	return math.Floor(e.span/e.interval) + 1
}

// subqueryCost sums up what the subqueries of an expression cost.
type subqueryCost struct {
	steps  float64 // evaluations of what is inside
	points float64 // that the functions over them look at in one series
}

// add counts an expression, as the engine evaluates it: a subquery over all times at which what is around it is evaluated, and
// its range before them.
func (c *subqueryCost) add(node parser.Node, at evaluation) {
	switch n := node.(type) {
	case *parser.StepInvariantExpr:
		at.span = 0
	case *parser.SubqueryExpr:
		inside := evaluation{span: at.span + float64(n.Range), interval: float64(n.Step)}
		if n.Step == 0 {
			inside.interval = float64(defaultSubqueryStep)
		}
		c.steps += inside.steps()
		c.points += at.steps() * (float64(n.Range)/inside.interval + 1)
		at = inside
	}
	for child := range parser.ChildrenIter(node) {
		c.add(child, at)
	}
}
