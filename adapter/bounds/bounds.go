// Package bounds refuses queries whose text alone costs too much. It checks a text before anything is made of it:
// parsing, and the compiling of regular expressions, have no bound of their own and cannot be interrupted.
package bounds

import (
	"errors"
	"fmt"
	"regexp/syntax"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"
)

// ErrTooComplex marks a query that is refused for what it would cost. Sending it again cannot help.
var ErrTooComplex = errors.New("query too complex")

// What one query may have. Queries of people and of dashboards stay far below.
const (
	MaxDepth     = 200     // parentheses, braces and brackets inside each other
	MaxOperators = 2000    // each is a level of the parsed expression
	MaxMatchers  = 1000    // of all selectors of a remote read
	MaxSelectors = 100     // match[] of one request
	MaxQueries   = 1000    // of a remote read
	MaxPattern   = 250_000 // size of the regular expressions together, see Patterns
)

// Patterns sums up what regular expressions cost. The zero value is ready.
type Patterns struct{ size int }

// Add counts one regular expression: a unit for each instruction that its program will have, roughly, of 40 bytes.
// Beyond MaxPattern the error is ErrTooComplex. What is no regular expression is left for the compiler to say.
func (p *Patterns) Add(pattern string) error {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return nil
	}
	if p.size += programSize(re, MaxPattern-p.size); p.size > MaxPattern {
		return fmt.Errorf("%w: its regular expressions, with repeats such as {1000} written out, are larger than %d",
			ErrTooComplex, MaxPattern)
	}
	return nil
}

// programSize is the size of an expression with its repeats written out. Beyond limit it is only known to be larger.
func programSize(re *syntax.Regexp, limit int) int {
	size := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		size = 1 // one instruction, and its ranges are of the text's length
	}
	for _, sub := range re.Sub {
		if size > limit {
			return size
		}
		size += programSize(sub, limit-size)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Max, re.Min+1)
	}
	return size
}

// Text checks a PromQL expression of at most maxBytes. The error is ErrTooComplex.
func Text(query string, maxBytes int) error {
	if err := checkLength(len(query), maxBytes); err != nil {
		return err
	}
	var (
		lexer            = parser.Lex(query)
		item             parser.Item
		patterns         Patterns
		depth, operators int
		pattern          bool // the next item is a regular expression
	)
	for {
		lexer.NextItem(&item)
		switch typ := item.Typ; {
		case typ == parser.EOF || typ == parser.ERROR:
			return nil // what is wrong is for the parser to say
		case typ == parser.LEFT_PAREN || typ == parser.LEFT_BRACE || typ == parser.LEFT_BRACKET:
			depth++
		case typ == parser.RIGHT_PAREN || typ == parser.RIGHT_BRACE || typ == parser.RIGHT_BRACKET:
			depth--
		case typ == parser.STRING && pattern:
			if text, err := strutil.Unquote(item.Val); err == nil {
				if err := patterns.Add(text); err != nil {
					return err
				}
			}
		case typ.IsOperator():
			operators++
		}
		if depth > MaxDepth {
			return fmt.Errorf("%w: more than %d parentheses inside each other", ErrTooComplex, MaxDepth)
		}
		if operators > MaxOperators {
			return fmt.Errorf("%w: more than %d operators", ErrTooComplex, MaxOperators)
		}
		pattern = item.Typ == parser.EQL_REGEX || item.Typ == parser.NEQ_REGEX
	}
}

func checkLength(bytes, maxBytes int) error {
	if bytes > maxBytes {
		return fmt.Errorf("%w: it has %d bytes, --query.max-query-bytes allows %d", ErrTooComplex, bytes, maxBytes)
	}
	return nil
}

// Parser is a parser that checks what it is given first.
type Parser struct {
	parser.Parser
	MaxBytes int // of an expression, or of all selectors of a request together
}

// ParseExpr parses an expression.
func (p Parser) ParseExpr(input string) (parser.Expr, error) {
	if err := Text(input, p.MaxBytes); err != nil {
		return nil, err
	}
	return p.Parser.ParseExpr(input)
}

// ParseMetricSelector parses a selector.
func (p Parser) ParseMetricSelector(input string) ([]*labels.Matcher, error) {
	if err := Text(input, p.MaxBytes); err != nil {
		return nil, err
	}
	return p.Parser.ParseMetricSelector(input)
}

// ParseMetricSelectors parses the selectors of one request.
func (p Parser) ParseMetricSelectors(selectors []string) ([][]*labels.Matcher, error) {
	if len(selectors) > MaxSelectors {
		return nil, fmt.Errorf("%w: %d selectors, at most %d are allowed", ErrTooComplex, len(selectors), MaxSelectors)
	}
	total := 0
	for _, s := range selectors {
		total += len(s)
	}
	if err := checkLength(total, p.MaxBytes); err != nil {
		return nil, err
	}
	for _, s := range selectors {
		if err := Text(s, p.MaxBytes); err != nil {
			return nil, err
		}
	}
	return p.Parser.ParseMetricSelectors(selectors)
}
