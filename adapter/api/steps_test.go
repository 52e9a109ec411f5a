package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/adapter/api"
)

// Each of these ended the process, or ran for minutes beyond its timeout.
func TestHandler_RefusesSubqueriesOfTooManySteps(t *testing.T) {
	h := newHandler(t, nil)
	for _, query := range []string{
		"max_over_time(up[1y:1ms])",
		"max_over_time(nosuch[1y:1ms])",
		"up[1y:1ms]",
		"sum(up) + count(max_over_time((up + 1)[1y:1ms] offset 5m))",
		"max_over_time(max_over_time(up[1d:1s])[1d:1s])",
		"max_over_time(max_over_time(up[1d:1s] @ end())[1y:1s])",
		"max_over_time(max_over_time(max_over_time(up[1d:1m])[10d:1m])[10y:1m])",
		"max_over_time(up[290y:1s])",
		"1 - -quantile_over_time(0.5, (up > 0)[1y:1ms] @ 0)",
		strings.Repeat("max_over_time(", 20) + "up" + strings.Repeat("[100d:1m])", 20),
	} {
		begin := time.Now()
		got := do(h, "POST", "/api/v1/query", url.Values{"query": {query}, "time": {seconds(dataEnd)}}.Encode())
		if got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "--query.max-subquery-steps") {
			t.Errorf("%s: got %d %s", query, got.Code, got.Body)
		}
		t.Logf("%s: %v", query, time.Since(begin))
	}
}

// The steps are those of the whole query: its own range counts.
func TestHandler_CountsTheStepsThatARangeAddsToSubqueries(t *testing.T) {
	h := newHandler(t, func(c *api.Config) { c.MaxSubquerySteps = 1000 })
	for _, c := range []struct {
		query, start, end, step string
		refused                 bool
	}{
		{"max_over_time(up[15m:1s])", "0", "0", "1", false},
		{"max_over_time(up[15m:1s])", "0", "90", "1", false},
		{"max_over_time(up[15m:1s])", "0", "110", "1", true},   // 1010 steps of the subquery
		{"max_over_time(up[15m:1s])", "0", "110", "120", true}, // the engine evaluates it over the whole range
		{"max_over_time(up[15m:1s] @ 100)", "0", "110", "1", false},
		{"max_over_time(up[5m:1s])", "0", "600", "1", true}, // 901 steps, and 601 times 301 points
		{"max_over_time(up[5m:1s])", "0", "600", "10", false},
		{"max_over_time(up[16h])", "0", "10000", "1", false}, // no subquery
		{"max_over_time(up[16h:])", "0", "0", "60", false},   // a minute is the default
		{"max_over_time(up[17h:])", "0", "0", "60", true},
		{"max_over_time(up[8h:]) + max_over_time(up[9h:])", "0", "0", "60", true},
	} {
		form := url.Values{"query": {c.query}, "start": {c.start}, "end": {c.end}, "step": {c.step}}
		got := do(h, "POST", "/api/v1/query_range", form.Encode())
		if refused := got.Code == http.StatusUnprocessableEntity; refused != c.refused || !refused &&
			got.Code != http.StatusOK {
			t.Errorf("%v: got %d %s", c, got.Code, got.Body)
		}
	}
}

func TestHandler_RefusesTextsThatCostTooMuchToParse(t *testing.T) {
	h := newHandler(t, nil)
	long := "probe" + strings.Repeat("/1", 40_000)
	pattern := `{a=~"` + strings.Repeat("[^a]{1000}", 300) + `"}`
	selectors := url.Values{"match[]": make([]string, 101)}
	for i := range selectors["match[]"] {
		selectors["match[]"][i] = "up"
	}
	for path, form := range map[string]url.Values{
		"query":            {"query": {long}},
		"query_range":      {"query": {long}, "start": {"0"}, "end": {"1"}, "step": {"1"}},
		"query_exemplars":  {"query": {pattern}},
		"format_query":     {"query": {long}},
		"parse_query":      {"query": {pattern}},
		"series":           {"match[]": {pattern}},
		"labels":           {"match[]": {pattern}},
		"labels?":          selectors,
		"label/job/values": {"match[]": {pattern}},
	} {
		method, target, body := "POST", "/api/v1/"+strings.TrimSuffix(path, "?"), form.Encode()
		if strings.HasPrefix(path, "label/") {
			method, target, body = "GET", target+"?"+body, ""
		}
		got := do(h, method, target, body)
		if got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "query too complex") {
			t.Errorf("%s: got %d %.300s", path, got.Code, got.Body)
		}
	}
}
