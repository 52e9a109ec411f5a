package bounds_test

import (
	"errors"
	"regexp/syntax"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtsd/promtsd/adapter/bounds"
)

const maxBytes = 16 << 10

func newParser() bounds.Parser {
	return bounds.Parser{Parser: parser.NewParser(parser.Options{}), MaxBytes: maxBytes}
}

// Each of these took seconds to minutes, or gigabytes, to parse.
func TestParser_RefusesWhatCostsTooMuchToParse(t *testing.T) {
	for name, query := range map[string]string{
		"long":                 "probe" + strings.Repeat("/1", maxBytes/2),
		"parentheses":          strings.Repeat("(", bounds.MaxDepth+1) + "1" + strings.Repeat(")", bounds.MaxDepth+1),
		"open parentheses":     strings.Repeat("(", maxBytes),
		"signs":                strings.Repeat("-", bounds.MaxOperators+1) + "1",
		"operators":            "p" + strings.Repeat("/1", bounds.MaxOperators+1),
		"repeats":              `{a=~"` + strings.Repeat("[^a]{1000}", 300) + `"}`,
		"repeats of repeats":   `{a=~"` + strings.Repeat("((ab){30}){30}", 300) + `"}`,
		"repeats of many":      "{" + strings.Repeat(`a=~"(abcdefgh){100}",`, 400) + "}",
		"repeats in a group":   `sum by (a) (b{c!~'` + strings.Repeat(".{1000,}", 300) + `'})`,
		"repeats up to a many": `{a=~"` + strings.Repeat("(ab){0,500}", 300) + `"}`,
	} {
		_, err := newParser().ParseExpr(query)
		if !errors.Is(err, bounds.ErrTooComplex) {
			t.Errorf("%s: got %.200v, want that it is too complex", name, err)
		}
	}
}

func TestParser_LeavesWhatPeopleAskAlone(t *testing.T) {
	for _, query := range []string{
		`histogram_quantile(0.99, sum by (le, job) (rate(http_request_duration_seconds_bucket{job=~"a.+|b{2,3}"}[5m])))`,
		strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100),
		"a" + strings.Repeat(" or a", 500),
		`{instance=~"` + strings.Repeat("host-0001:9100|", 1000) + `host"}`,
		`{id=~"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"}`,
		`label_replace(a, "b", "$1", "c", "(((((((((.*)))))))))")`,
	} {
		if _, err := newParser().ParseExpr(query); err != nil {
			t.Errorf("%.100s: %v", query, err)
		}
	}
	for _, broken := range []string{"a{", `a{b=~"("}`, `a{b=~"`, "", "a b"} {
		if _, err := newParser().ParseExpr(broken); err == nil || errors.Is(err, bounds.ErrTooComplex) {
			t.Errorf("%s: got %v, want the parser's own error", broken, err)
		}
	}
}

func TestParser_BoundsAllSelectorsOfARequestTogether(t *testing.T) {
	selectors := make([]string, bounds.MaxSelectors)
	for i := range selectors {
		selectors[i] = "a" + strconv.Itoa(i)
	}
	if _, err := newParser().ParseMetricSelectors(selectors); err != nil {
		t.Fatal(err)
	}
	if _, err := newParser().ParseMetricSelectors(append(selectors, "b")); !errors.Is(err, bounds.ErrTooComplex) {
		t.Errorf("one selector more: %v", err)
	}
	long := strings.Repeat("a", maxBytes/2+1)
	if _, err := newParser().ParseMetricSelectors([]string{long, long}); !errors.Is(err, bounds.ErrTooComplex) {
		t.Errorf("two of more than half the length: %v", err)
	}
	if _, err := newParser().ParseMetricSelector(long + long); !errors.Is(err, bounds.ErrTooComplex) {
		t.Errorf("a long one: %v", err)
	}
}

// The size that counts is roughly that of the program which would be compiled.
func TestPatterns_CountsTheInstructions(t *testing.T) {
	for _, pattern := range []string{
		"[^a]{200}", "(ab){100}", "((ab){10}){10}", "a{3,}", "(abc|def|ghij)+", strings.Repeat("x", 500), "(a?){100}",
		"a{0,200}",
		`[0-9a-f]{8}-[\pL\pN]{50}`, "(?i:abcdef){20}",
	} {
		re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		var p bounds.Patterns
		allowed := 0
		for ; allowed*len(program.Inst) <= 2*bounds.MaxPattern && p.Add(pattern) == nil; allowed++ {
		}
		if total := allowed * len(program.Inst); total > 2*bounds.MaxPattern || total < bounds.MaxPattern/4 {
			t.Errorf("%s: %d times its %d instructions are allowed", pattern, allowed, len(program.Inst))
		}
	}
}
