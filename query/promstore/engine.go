package promstore

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/query"
)

// Engine is a query engine whose queries tell a Queryable at which samples they look: of a day with a step of an hour,
// the five minutes before each hour. Hints of a Select do not tell it: they name neither the lookback nor where the
// steps of a subquery begin. The answers are those of the engine alone.
type Engine struct{ promql.QueryEngine }

// NewInstantQuery is the engine's.
func (e Engine) NewInstantQuery(
	ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, ts time.Time,
) (promql.Query, error) {
	return withLooks(e.QueryEngine.NewInstantQuery(ctx, q, opts, text, ts))
}

// NewRangeQuery is the engine's.
func (e Engine) NewRangeQuery(
	ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start, end time.Time, step time.Duration,
) (promql.Query, error) {
	return withLooks(e.QueryEngine.NewRangeQuery(ctx, q, opts, text, start, end, step))
}

func withLooks(q promql.Query, err error) (promql.Query, error) {
	if err != nil {
		return nil, err
	}
	stmt, ok := q.Statement().(*parser.EvalStmt)
	if !ok {
		return q, nil
	}
	return lookingQuery{q, looksOf(stmt)}, nil
}

// lookingQuery hands its looks to the Selects of its execution, whatever stands between the engine and the Queryable.
type lookingQuery struct {
	promql.Query
	looks looks
}

func (q lookingQuery) Exec(ctx context.Context) *promql.Result {
	ctx = context.WithValue(ctx, resultsKey{}, resultsOf(q.Statement().(*parser.EvalStmt)))
	return q.Query.Exec(context.WithValue(ctx, looksKey{}, q.looks))
}

type looksKey struct{}

// looks says where the selectors of a query look. A selector is known by its first matcher, which no other has: the
// engine passes it to Select as it was parsed. It looks everywhere if it is not listed.
type looks map[*labels.Matcher]look

// look is one of the windows of a selector; the others follow it by the step that the hints of a Select tell.
type look struct {
	end, width int64 // ms
}

// looksOf finds the looks of a query, as the engine evaluates it:
//
//   - A selector is evaluated at the start of the query and each step after it; within subqueries, at times that are multiples
//     of the innermost one's step, wherever that begins. It looks that much earlier as its offset says.
//   - There it looks at its range, or at the lookback; "anchored" adds the lookback to the range, and "smoothed" the lookback
//     before and after.
//   - One with an @ of its own is evaluated at one time: all that its hints say is one window. It is not listed.
//   - The second argument of info() is never evaluated, and info() has Selects of its own, with matchers of its own.
func looksOf(s *parser.EvalStmt) looks {
	start, lookback := s.Start.UnixNano()/1e6, s.LookbackDelta.Milliseconds()
	found := make(looks)
	parser.Inspect(s.Expr, func(node parser.Node, path []parser.Node) error {
		n, ok := node.(*parser.VectorSelector)
		if !ok || n.Timestamp != nil || len(n.LabelMatchers) == 0 {
			return nil
		}
		l := look{end: start, width: lookback}
		for _, around := range path {
			switch p := around.(type) {
			case *parser.SubqueryExpr:
				l.end = 0
			case *parser.MatrixSelector:
				l.width = p.Range.Milliseconds()
				if n.Anchored || n.Smoothed {
					l.width += lookback
				}
			}
		}
		if n.Smoothed {
			l.end += lookback
			l.width += lookback
		}
		l.end -= n.OriginalOffset.Milliseconds()
		found[n.LabelMatchers[0]] = l
		return nil
	})
	return found
}

// windowsOf are the windows of a Select; nil if it may need all samples.
func windowsOf(ctx context.Context, step int64, matchers []*labels.Matcher) *query.Windows {
	found, _ := ctx.Value(looksKey{}).(looks)
	if len(matchers) == 0 || found == nil {
		return nil
	}
	l, ok := found[matchers[0]]
	if !ok {
		return nil
	}
	return query.NewWindows(l.end, step, l.width)
}
