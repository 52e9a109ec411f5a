package promstore

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/mapping"
)

// The engine takes all series of a selector before it looks at the first, and makes of each a list of points: one for
// each time at which the selector is evaluated, or, where the query is a range selector and nothing else, its samples.
// Of such lists it makes others, until the answer is done. How long they may become is known when a series has been
// read, so that the memory is taken from the query's account before the engine has it.

const (
	// pointBytes is what a point takes, as an operand and in what is made of it.
	pointBytes = 2 * 16
	// windowSampleBytes is what a sample takes while a function looks at it: in a ring that doubles, and among those of
	// its window, which some functions copy.
	windowSampleBytes = 112
	// lineBytes is what a series takes besides its points and labels, likewise.
	lineBytes = 400
)

// results says what the engine will make of the series of the selectors of a query.
type results struct {
	selectors map[*labels.Matcher]result // by the first matcher, which no other has
	samples   bool                       // the answer is the samples of its only selector
}

// result says what the engine will make of each series of a selector.
type result struct {
	engine  bool  // it is for an engine
	samples bool  // its samples; else a point for each step
	span    int64 // from the first step to the last, in ms
	step    int64 // from one to the next, in ms; 0: there is one step
	width   int64 // for how long a sample counts, in ms; 0: for all steps
	ranged  bool  // it is a range selector
}

type resultsKey struct{}

// resultsOf looks at a query.
func resultsOf(s *parser.EvalStmt) results {
	found := results{selectors: make(map[*labels.Matcher]result)}
	root := s.Expr
	for {
		if p, ok := root.(*parser.ParenExpr); ok {
			root = p.Expr
		} else if p, ok := root.(*parser.StepInvariantExpr); ok {
			root = p.Expr
		} else {
			break
		}
	}
	_, found.samples = root.(*parser.MatrixSelector)
	parser.Inspect(s.Expr, func(node parser.Node, path []parser.Node) error {
		n, ok := node.(*parser.VectorSelector)
		if !ok || len(n.LabelMatchers) == 0 {
			return nil
		}
		span, width, ranged := s.End.Sub(s.Start), s.LookbackDelta, false
		for _, around := range path {
			switch p := around.(type) {
			case *parser.SubqueryExpr:
				span += p.Range
			case *parser.MatrixSelector:
				width, ranged = p.Range+2*s.LookbackDelta, true // of smoothed ones
			}
		}
		r := result{span: span.Milliseconds(), width: width.Milliseconds(), ranged: ranged}
		if n.Timestamp != nil { // it is evaluated once, and counts at each step
			r.width = 0
		}
		found.selectors[n.LabelMatchers[0]] = r
		return nil
	})
	return found
}

// resultOf says what becomes of the series of a Select.
func resultOf(ctx context.Context, hints *storage.SelectHints, matchers []*labels.Matcher) result {
	found, ok := ctx.Value(resultsKey{}).(results)
	if !ok || len(matchers) == 0 {
		return result{}
	}
	r, listed := found.selectors[matchers[0]]
	if !listed {
		r.span = hints.End - hints.Start
	}
	r.engine, r.samples, r.step = true, found.samples, hints.Step
	return r
}

// bytes is the memory of it for one series.
func (r result) bytes(ls labels.Labels, e extent) int {
	if !r.engine {
		return 0
	}
	points := int64(1)
	switch {
	case r.samples:
		points = e.samples
	case r.step > 0 && r.width > 0:
		points += min(r.span, e.maxT-e.minT+r.width) / r.step
	case r.step > 0:
		points += r.span / r.step
	}
	return lineBytes + 2*int(ls.ByteSize()) + int(points)*(pointBytes+2*e.histogram)
}

// windowBytes is the memory of the largest window of a series, about. Those of one series after the other use it.
func (r result) windowBytes(e extent) int64 {
	if !r.engine || !r.ranged {
		return 0
	}
	samples := e.samples
	// where they are twice as many as on the average
	if width := max(r.width, r.step); r.width > 0 && e.maxT-e.minT > 2*width {
		samples = int64(float64(samples) * 2 * float64(width) / float64(e.maxT-e.minT))
	}
	return samples * int64(windowSampleBytes+e.histogram)
}

// extent says of samples how many they are, and how large.
type extent struct {
	samples    int64
	minT, maxT int64
	histogram  int // bytes of the largest native histogram
}

// add adds samples that come after those before.
func (e *extent) add(p *mapping.Points) {
	if e.samples == 0 {
		e.minT = p.T[0]
	}
	e.samples += int64(p.Len())
	e.maxT = p.T[p.Len()-1]
	for _, h := range p.H {
		e.histogram = max(e.histogram, h.Bytes())
	}
}
