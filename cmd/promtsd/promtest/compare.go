package promtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Range is a grid of evaluation times: Start, Start+Step, ... up to and with End. Times are exact to the millisecond.
type Range struct {
	Start, End time.Time
	Step       time.Duration
}

// Queries is what AssertSame asks: each expression at each time and over each range. A range selector (up[5m]) can be
// asked at a time only; leave it out of Queries that have ranges.
type Queries struct {
	Exprs  []string
	At     []time.Time
	Ranges []Range
}

// maxDiffLines bounds the lines that Diff gives for one answer.
const maxDiffLines = 20

// AssertSame fails the test, once for each query, where got answers another thing than want: another label set, a
// sample more or less, another time, or a value that differs by one bit (NaN equals NaN). The order of series is no
// difference.
//
// Two servers that know nothing agree about everything: an expression for which want has no sample at any time is a
// failure too, and so is a warning in an answer, because it stands for data that could not be read.
func AssertSame(t testing.TB, want, got *Server, q Queries) {
	t.Helper()
	if len(q.Exprs) == 0 || len(q.At)+len(q.Ranges) == 0 {
		t.Fatal("compare two servers: no expressions, or no times: nothing would be compared")
	}
	for _, expr := range q.Exprs {
		samples := 0
		compare := func(when string, ask func(context.Context, *Server) (Result, error)) {
			t.Helper()
			w, err := ask(t.Context(), want)
			if err != nil {
				t.Errorf("%s %s: the wanted answer: %v", expr, when, err)
				return
			}
			samples += w.Samples()
			g, err := ask(t.Context(), got)
			if err != nil {
				t.Errorf("%s %s: %v", expr, when, err)
				return
			}
			for _, warning := range slices.Concat(w.Warnings, g.Warnings) {
				t.Errorf("%s %s: answered with a warning: %s", expr, when, warning)
			}
			if diff := Diff(w, g); diff != "" {
				t.Errorf("%s %s: the answers differ (- wanted, + got):\n%s", expr, when, diff)
			}
		}
		for _, at := range q.At {
			compare("at "+stamp(at.UnixMilli()), func(ctx context.Context, s *Server) (Result, error) {
				return s.Query(ctx, expr, at)
			})
		}
		for _, r := range q.Ranges {
			when := fmt.Sprintf("from %s to %s by %s", stamp(r.Start.UnixMilli()), stamp(r.End.UnixMilli()), r.Step)
			compare(when, func(ctx context.Context, s *Server) (Result, error) { return s.QueryRange(ctx, expr, r) })
		}
		if samples == 0 {
			t.Errorf("%s: the wanted answers hold no sample at any of the times: the comparison shows nothing", expr)
		}
	}
}

// Diff describes how got differs from want, at most 20 lines long; it is empty when they are the same. Lines that begin
// with - are in want only, those with + in got only. Warnings are not compared.
func Diff(want, got Result) string {
	var d diff
	if want.Type != got.Type {
		d.add("- a %s", want.Type)
		d.add("+ a %s", got.Type)
	}
	// Both are sorted by labels: walk them side by side.
	w, g := want.Series, got.Series
	for len(w) > 0 || len(g) > 0 {
		switch {
		case len(g) == 0 || len(w) > 0 && w[0].Labels < g[0].Labels:
			d.add("- %s with %d points", w[0].Labels, len(w[0].Points))
			w = w[1:]
		case len(w) == 0 || g[0].Labels < w[0].Labels:
			d.add("+ %s with %d points", g[0].Labels, len(g[0].Points))
			g = g[1:]
		default:
			d.points(w[0], g[0])
			w, g = w[1:], g[1:]
		}
	}
	return d.String()
}

// diff collects lines, counts those past the bound, and says so at its end.
type diff struct {
	lines   []string
	dropped int
}

func (d *diff) add(format string, args ...any) {
	if len(d.lines) == maxDiffLines-1 {
		d.dropped++
		return
	}
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// points compares two series with the same labels.
func (d *diff) points(want, got Series) {
	titled := false
	add := func(sign string, p Point) {
		if !titled {
			d.add("  %s", want.Labels)
			titled = true
		}
		d.add("%s   %s  %s", sign, stamp(p.T), p.V)
	}
	w, g := want.Points, got.Points
	for len(w) > 0 || len(g) > 0 {
		switch {
		case len(g) == 0 || len(w) > 0 && w[0].T < g[0].T:
			add("-", w[0])
			w = w[1:]
		case len(w) == 0 || g[0].T < w[0].T:
			add("+", g[0])
			g = g[1:]
		default:
			if w[0].V != g[0].V {
				add("-", w[0])
				add("+", g[0])
			}
			w, g = w[1:], g[1:]
		}
	}
}

func (d *diff) String() string {
	lines := d.lines
	if d.dropped > 0 {
		lines = append(lines, fmt.Sprintf("  and %d lines more", d.dropped))
	}
	return strings.Join(lines, "\n")
}

// stamp is a time in milliseconds, as people read it and as an API takes it.
func stamp(ms int64) string {
	return fmt.Sprintf("%s (%d ms)", time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.000"), ms)
}
