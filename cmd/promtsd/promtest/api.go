package promtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds the answer of a server under test, in bytes: past it the test asks for too much, or the server is
// broken.
const maxAnswer = 256 << 20

// Result is the answer to a PromQL query: the series of a vector or a matrix, or the one nameless series of a scalar or
// string.
type Result struct {
	// Type is vector, matrix, scalar or string.
	Type string
	// Series are in the order of their labels as text, whatever order the server gave them in.
	Series []Series
	// Warnings are what the server said beside the answer, such as a remote read that failed.
	Warnings []string
}

// Series is one series of an answer.
type Series struct {
	// Labels is the label set as PromQL writes it, in the order of the label names: {__name__="up", job="x"}.
	Labels string
	// Points are in the order the server gave them in, which is that of time.
	Points []Point
}

// Point is one sample of an answer.
type Point struct {
	// T is the time in milliseconds.
	T int64
	// V is the value as the server wrote it. Prometheus writes the shortest decimal that reads back as the same
	// float64, so that equal texts are equal values to the bit, with NaN equal to NaN, and 0 different from -0. A
	// histogram is its JSON.
	V string
}

// Samples is the number of points of all series.
func (r Result) Samples() int {
	n := 0
	for _, s := range r.Series {
		n += len(s.Points)
	}
	return n
}

// Query evaluates expr at one time.
func (s *Server) Query(ctx context.Context, expr string, at time.Time) (Result, error) {
	return s.query(ctx, "/api/v1/query", url.Values{"query": {expr}, "time": {seconds(at)}})
}

// QueryRange evaluates expr at r.Start, a step later, and so on up to and with r.End.
func (s *Server) QueryRange(ctx context.Context, expr string, r Range) (Result, error) {
	return s.query(ctx, "/api/v1/query_range", url.Values{
		"query": {expr},
		"start": {seconds(r.Start)},
		"end":   {seconds(r.End)},
		"step":  {strconv.FormatFloat(r.Step.Seconds(), 'f', -1, 64)},
	})
}

// Series lists the label sets, in the form and the order of Series.Labels, that any of the selectors matches between
// start and end, both inclusive.
func (s *Server) Series(ctx context.Context, start, end time.Time, selectors ...string) ([]string, error) {
	data, _, err := s.call(ctx, "/api/v1/series", url.Values{
		"match[]": selectors, "start": {seconds(start)}, "end": {seconds(end)},
	})
	if err != nil {
		return nil, err
	}
	var sets []map[string]string
	if err := json.Unmarshal(data, &sets); err != nil {
		return nil, fmt.Errorf("parse the series of %s: %w", s.URL(), err)
	}
	texts := make([]string, len(sets))
	for i, set := range sets {
		texts[i] = formatLabels(set)
	}
	slices.Sort(texts)
	return texts, nil
}

func (s *Server) query(ctx context.Context, path string, form url.Values) (Result, error) {
	data, warnings, err := s.call(ctx, path, form)
	if err != nil {
		return Result{}, err
	}
	r, err := parseResult(data)
	if err != nil {
		return Result{}, fmt.Errorf("parse the answer of %s to %s: %w", s.URL(), form.Get("query"), err)
	}
	r.Warnings = warnings
	return r, nil
}

// call posts a form to the HTTP API and returns the data and the warnings of a successful answer.
func (s *Server) call(ctx context.Context, path string, form url.Values) (json.RawMessage, []string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer of %s: %w", req.URL, err)
	}
	if len(body) > maxAnswer {
		return nil, nil, fmt.Errorf("read the answer of %s: longer than %d bytes; ask for less", req.URL, maxAnswer)
	}
	var answer struct {
		Status   string          `json:"status"`
		Error    string          `json:"error"`
		Warnings []string        `json:"warnings"`
		Data     json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, nil, fmt.Errorf("parse the answer of %s (%s): %w", req.URL, resp.Status, err)
	}
	if answer.Status != "success" {
		return nil, nil, fmt.Errorf("POST %s %s: %s: %s", req.URL, form.Encode(), resp.Status, answer.Error)
	}
	return answer.Data, answer.Warnings, nil
}

// parseResult reads the data of a query's answer in any of its four shapes.
func parseResult(data []byte) (Result, error) {
	var typed struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(data, &typed); err != nil {
		return Result{}, err
	}
	r := Result{Type: typed.ResultType}
	switch typed.ResultType {
	case "scalar", "string":
		var point Point
		if err := json.Unmarshal(typed.Result, &point); err != nil {
			return Result{}, err
		}
		r.Series = []Series{{Labels: "{}", Points: []Point{point}}}
		return r, nil
	case "vector", "matrix":
	default:
		return Result{}, fmt.Errorf("unknown result type %q", typed.ResultType)
	}

	// A vector has value or histogram, a matrix values and histograms, of which one series may have both.
	var series []struct {
		Metric     map[string]string `json:"metric"`
		Value      *Point            `json:"value"`
		Histogram  *Point            `json:"histogram"`
		Values     []Point           `json:"values"`
		Histograms []Point           `json:"histograms"`
	}
	if err := json.Unmarshal(typed.Result, &series); err != nil {
		return Result{}, err
	}
	for _, s := range series {
		points := slices.Concat(s.Values, s.Histograms)
		for _, p := range []*Point{s.Value, s.Histogram} {
			if p != nil {
				points = append(points, *p)
			}
		}
		slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.T, b.T) })
		r.Series = append(r.Series, Series{Labels: formatLabels(s.Metric), Points: points})
	}
	slices.SortStableFunc(r.Series, func(a, b Series) int { return strings.Compare(a.Labels, b.Labels) })
	return r, nil
}

// UnmarshalJSON reads a pair [seconds, "value"], or [seconds, {histogram}].
func (p *Point) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("a point has %d parts, not a time and a value: %s", len(pair), data)
	}
	var t float64
	if err := json.Unmarshal(pair[0], &t); err != nil {
		return err
	}
	// Prometheus writes at most three decimals, and a float64 holds such a number of seconds well enough to round back.
	p.T = int64(math.Round(t * 1000))
	if pair[1][0] == '"' {
		return json.Unmarshal(pair[1], &p.V)
	}
	var histogram bytes.Buffer
	if err := json.Compact(&histogram, pair[1]); err != nil {
		return err
	}
	p.V = histogram.String()
	return nil
}

// formatLabels writes a label set as a PromQL selector would, sorted by name.
func formatLabels(set map[string]string) string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%q", name, set[name])
	}
	b.WriteByte('}')
	return b.String()
}

// seconds is a time as the HTTP API takes it: Unix seconds, with milliseconds.
func seconds(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', -1, 64)
}
