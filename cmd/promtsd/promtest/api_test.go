package promtest

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseResult_ReadsHistogramsAmongFloatsInTheOrderOfTime(t *testing.T) {
	got, err := parseResult([]byte(`{"resultType": "matrix", "result": [
		{"metric": {"b": "2"}, "values": [[1, "5"], [3.25, "-0"]], "histograms": [[2, {"count": "1", "sum": "2"}]]},
		{"metric": {"a": "\"1\""}, "values": [[1435781451.781, "NaN"]]}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Result{Type: "matrix", Series: []Series{
		{Labels: `{a="\"1\""}`, Points: []Point{{1435781451781, "NaN"}}},
		{Labels: `{b="2"}`, Points: []Point{{1000, "5"}, {2000, `{"count":"1","sum":"2"}`}, {3250, "-0"}}},
	}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestParseResult_RefusesWhatIsNoAnswer(t *testing.T) {
	for _, data := range []string{
		``,
		`{"resultType": "stream", "result": []}`,
		`{"resultType": "scalar", "result": []}`,
		`{"resultType": "scalar", "result": [1, "2", 3]}`,
		`{"resultType": "vector", "result": [{"value": ["x", "1"]}]}`,
	} {
		if r, err := parseResult([]byte(data)); err == nil {
			t.Errorf("%s: got %v, want an error", data, r)
		}
	}
}

func TestDiff_ShowsPointsByTimeAndStopsAtItsBound(t *testing.T) {
	points := func(n int, value string) []Point {
		var points []Point
		for i := range n {
			points = append(points, Point{T: int64(i), V: value})
		}
		return points
	}
	one := func(points ...Point) Result {
		return Result{Type: "matrix", Series: []Series{{Labels: "{}", Points: points}}}
	}

	for _, c := range []struct {
		name      string
		want, got Result
		lines     []string // the beginning of each line
	}{
		{"same", one(Point{1, "NaN"}), one(Point{1, "NaN"}), nil},
		{"sign of zero", one(Point{1, "0"}), one(Point{1, "-0"}), []string{
			"  {}", "-   1970-01-01 00:00:00.001 (1 ms)  0", "+   1970-01-01 00:00:00.001 (1 ms)  -0",
		}},
		{"a millisecond late", one(Point{1, "5"}, Point{3, "6"}), one(Point{2, "5"}, Point{3, "6"}), []string{
			"  {}", "-   1970-01-01 00:00:00.001", "+   1970-01-01 00:00:00.002",
		}},
		{"one more", one(), one(Point{1, "5"}), []string{"  {}", "+   1970-01-01 00:00:00.001"}},
		{"type", Result{Type: "vector"}, Result{Type: "matrix"}, []string{"- a vector", "+ a matrix"}},
	} {
		var got []string
		if diff := Diff(c.want, c.got); diff != "" {
			got = strings.Split(diff, "\n")
		}
		if len(got) != len(c.lines) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.lines)
			continue
		}
		for i, line := range c.lines {
			if !strings.HasPrefix(got[i], line) {
				t.Errorf("%s: line %d: got %q, want %q", c.name, i, got[i], line)
			}
		}
	}

	long := strings.Split(Diff(one(points(50, "0")...), one(points(50, "1")...)), "\n")
	if last := long[len(long)-1]; len(long) != maxDiffLines || last != "  and 82 lines more" {
		t.Errorf("a long diff has %d lines and ends %q, want %d and the number left out", len(long), last, maxDiffLines)
	}
}
