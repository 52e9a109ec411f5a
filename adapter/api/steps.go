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
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query/budget"
)

// boundedEngine makes queries that end in time. It refuses those whose subqueries have too many steps: the module's
// engine makes lists of that length before it looks at any limit, and does not look at its context while a function
// goes over the points of one series.
type boundedEngine struct {
	promql.QueryEngine
	gate     gate
	maxSteps int
}

const (
	// pointsPerStep says how many points the functions over subqueries may look at in each series, for each step that all
	// subqueries may have. A hundred million take a second, and some functions twenty times as long.
	pointsPerStep = 100

	// largeWork is from how many evaluations of parts of an expression and points of subqueries on a query is large: the
	// first take some tenths of a second, without any memory.
	largeWork = 1_000_000
)

func (e boundedEngine) NewInstantQuery(
	ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, ts time.Time,
) (promql.Query, error) {
	return e.bounded(func() (promql.Query, error) { return e.QueryEngine.NewInstantQuery(ctx, q, opts, text, ts) })
}

func (e boundedEngine) NewRangeQuery(
	ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start, end time.Time, step time.Duration,
) (promql.Query, error) {
	return e.bounded(func() (promql.Query, error) {
		return e.QueryEngine.NewRangeQuery(ctx, q, opts, text, start, end, step)
	})
}

// bounded makes a query. One that costs too much ends with an error as soon as it is executed: so the answer is 422, as
// for the module's own limits. An error of NewQuery is always answered 400.
func (e boundedEngine) bounded(create func() (promql.Query, error)) (promql.Query, error) {
	query, err := create()
	if err != nil {
		return nil, err
	}
	stmt, ok := query.Statement().(*parser.EvalStmt)
	if !ok {
		return query, nil
	}
	var c queryCost
	c.add(stmt.Expr, evaluation{span: float64(stmt.End.Sub(stmt.Start)), interval: float64(stmt.Interval)})
	switch {
	case c.steps > float64(e.maxSteps):
		err = fmt.Errorf("%w: its subqueries have %.3g steps, --query.max-subquery-steps allows %d: ask for a shorter range "+
			"or a larger step", bounds.ErrTooComplex, c.steps, e.maxSteps)
	case c.points > float64(e.maxSteps)*pointsPerStep:
		err = fmt.Errorf(
			"%w: functions over its subqueries look at %.3g points of each series, --query.max-subquery-steps=%d "+
				"allows %.3g: ask for fewer steps", bounds.ErrTooComplex, c.points, e.maxSteps, float64(e.maxSteps)*pointsPerStep)
	default:
		return &boundedQuery{query, e, create, int64(c.steps) * stepBytes, c.evaluations+c.points > largeWork}, nil
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

// boundedQuery is a query that has a place in the gate while it runs, and whose memory is taken from its account: what
// the engine makes of series that are read, whoever reads them takes; so that here its subqueries are left, which need
// no series, and the answer. It names the end of its time as Prometheus does, wherever it was met: in the store it is
// an error of the store's.
type boundedQuery struct {
	promql.Query
	engine  boundedEngine
	create  func() (promql.Query, error) // makes it anew
	bytes   int64                        // of its subqueries
	isLarge bool
}

func (q *boundedQuery) Exec(ctx context.Context) *promql.Result {
	account := budget.From(ctx)
	result := q.try(ctx, account)
	if !errors.Is(result.Err, errBeginAgain) {
		return result
	}
	q.Close()
	again, err := q.create()
	if err != nil {
		return &promql.Result{Err: err}
	}
	q.Query, q.isLarge = again, true
	account = account.Again()
	return q.try(budget.NewContext(ctx, account), account)
}

// try executes the query when it is its turn.
func (q *boundedQuery) try(ctx context.Context, account *budget.Account) *promql.Result {
	t := &turn{gate: q.engine.gate, client: request.SenderOf(ctx), isLarge: q.isLarge, account: account, bytes: q.bytes}
	defer t.leave()
	account.OnLarge(t.becomeLarge)
	result := q.Query.Exec(context.WithValue(ctx, turnKey{}, t))
	account.OnLarge(nil) // what comes now needs no place
	t.leave()
	if result.Err == nil {
		result.Err = account.Take(ctx, answerBytes(result.Value))
	}
	result.Err = note(ctx, timeError(result.Err, "query execution"))
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

// queryCost sums up what an expression costs that has one series, its subqueries above all.
type queryCost struct {
	steps       float64 // evaluations of what is inside
	points      float64 // that the functions over them look at in one series
	evaluations float64 // of all parts of the expression
}

// add counts an expression, as the engine evaluates it: a subquery over all times at which what is around it is
// evaluated, and its range before them.
func (c *queryCost) add(node parser.Node, at evaluation) {
	c.evaluations += at.steps()
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
