package stress_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// queryAttacks are questions in PromQL.
func queryAttacks() []stressAttack {
	const (
		tooLong     = "400 --query.max-query-bytes"
		tooComplex  = "400 query too complex"
		tooManyStep = "422 --query.max-subquery-steps"
		tooLarge    = "422 --query.max-memory-bytes"
		totalLarge  = "503 --query.max-total-memory-bytes"
	)
	query := func(expr string) func(*stressClient) { return asking("/api/v1/query", "query", expr) }
	now := time.Now().Unix()
	ranged := func(expr string, step int) func(*stressClient) {
		return asking("/api/v1/query_range", "query", expr, "start", strconv.FormatInt(now-6000, 10), "end",
			strconv.FormatInt(now, 10),
			"step", strconv.Itoa(step))
	}
	// everywhere asks the same at each path that takes an expression.
	everywhere := func(expr string) func(*stressClient) {
		var strikes []func(*stressClient)
		for _, path := range []string{"query", "query_range", "format_query", "parse_query", "query_exemplars"} {
			strikes = append(strikes, asking("/api/v1/"+path, "query", expr, "start", "0", "end", "1", "step", "1"))
		}
		for _, path := range []string{"/api/v1/series", "/api/v1/labels"} {
			strikes = append(strikes, asking(path, "match[]", expr))
		}
		if len(expr) < 20_000 { // these have no POST
			strikes = append(strikes, asking("/internal/v1/explain", "selector", expr, "start", "0", "end", "1"),
				asking("/federate", "match[]", expr), asking("/api/v1/label/a/values", "match[]", expr))
		}
		return anyOf(strikes...)
	}
	nested := func(n int, before, inside, after string) string {
		return strings.Repeat(before, n) + inside + strings.Repeat(after, n)
	}
	wild := `{n=~"0.+"}`
	return []stressAttack{
		{"steps of a subquery", 8, []string{tooManyStep}, anyOf(query(`max_over_time(up[1y:1ms])`),
			query(`max_over_time(m[1y:1ms] offset -1y)`),
			ranged(`max_over_time(up[30d:10s])`, 1))},
		{"nested subqueries", 8, []string{tooManyStep}, query(nested(3, "max_over_time(", "m", "[1d:10s])"))},
		{"subqueries within bounds", 20, []string{"200", totalLarge, tooLarge},
			anyOf(query(`max_over_time(vector(1)[10d:1s])`),
				query(`sum by (n) (max_over_time(m[1h:10s]))`), ranged(`max_over_time(m[1000s:100s])`, 60))},
		{"long expressions", 8, []string{tooLong}, everywhere("probe" + strings.Repeat("/1", 40_000))},
		{"many operators", 8, []string{tooComplex}, query("1" + strings.Repeat("/1", 8000))},
		{"many signs", 8, []string{tooComplex}, query(strings.Repeat("-", 16_000) + "1")},
		{"nested parentheses", 8, []string{tooComplex}, everywhere(nested(4000, "(", "1", ")"))},
		{"very many parentheses", 8, []string{tooLong}, everywhere(nested(100_000, "(", "1", ")"))},
		{"nested calls and aggregations", 8, []string{"200", tooComplex}, anyOf(query(nested(199, "abs(", "vector(1)", ")")),
			query(nested(199, "sum(", "m", ")")), query(nested(400, "sum(", "m", ")")))},
		{"many selectors", 8, []string{totalLarge, tooLarge, "200"}, query(strings.Repeat(wild+"or", 700) + wild)},
		{"repeats in regular expressions", 8, []string{tooComplex}, everywhere(`{n=~"` + strings.Repeat("[^a]{1000}",
			300) + `"}`)},
		{"nested repeats", 8, []string{"400"}, query(`{n=~"((a{100}){100}){100}"}`)},
		{"many regular expressions within bounds", 8, []string{"200", totalLarge, tooLarge},
			query(`honest{` + strings.Repeat(`instance=~".*(1|2|3|[4-9]+)[^x]*.*.*.*",`, 300) + `}`)},
		{"alternatives", 8, []string{"200", totalLarge, tooLarge}, query(`honest{n=~"` + strings.Repeat("(0|1|2|3)?",
			1400) + `"}`)},
		{"all samples", 10, []string{tooLarge, totalLarge}, anyOf(query(`{n=~".+"}[100m]`), query(wild+`[100m]`),
			ranged(`m*on(n)m`, 1))},
		{"joins of all with all", 10, []string{"422", totalLarge, "200"}, anyOf(query(`m * on() group_left() m`),
			ranged(`count_values("v", m)`, 1), ranged(`quantile_over_time(0.5, m[100m])`, 10), ranged(`topk(1e9, m)`, 1))},
		{"labels that double", 4, []string{"422", totalLarge}, anyOf(
			query(nested(40, "label_replace(", `label_replace(vector(1),"a","xxxxxxxx","","")`, `,"a","$1$1","a","(.*)")`)),
			query(nested(12, "label_join(", `label_replace(vector(1),"a","xxxxxxxx","","")`,
				`,"a","",`+strings.TrimSuffix(strings.Repeat(`"a",`, 20), ",")+`)`)))},
		{"odd numbers", 8, []string{"400", "200"}, anyOf(
			asking("/api/v1/query", "query", "m", "time", "1e30"), asking("/api/v1/query", "query", "m", "lookback_delta",
				"100000y"),
			asking("/api/v1/query_range", "query", "m", "start", "0", "end", "1e10", "step", "1"),
			asking("/api/v1/query_range", "query", "m", "start", "0", "end", "1", "step", "1e-9"),
			asking("/api/v1/query", "query", "m", "timeout", "-1s"), asking("/api/v1/series", "match[]", "{}"),
			asking("/api/v1/query", "query", "m[10000000000000y]"))},
		{"all times", 8, []string{"200", tooLarge, totalLarge}, anyOf(query(`count_over_time(honest[100y])`),
			query(`m offset 50y`),
			query(`sum(m @ 0)`), asking("/api/v1/query", "query", `count(m)`, "lookback_delta", "100y"))},
		{"clients that leave", 20, nil, leaving(anyOf(query(`{n=~".+"}[100m]`), asking("/api/v1/status/tsdb", "limit",
			"10000"), ranged("m", 1)))},
		{"label calls", 16, []string{"200", totalLarge, tooLarge}, anyOf(asking("/api/v1/labels"),
			asking("/api/v1/label/n/values"),
			asking("/api/v1/label/n/values", "match[]", `{n=~".*1.*"}`), asking("/api/v1/label/__name__/values"))},
		{"series calls", 16, []string{"200", totalLarge, tooLarge, "422 --query.max-series"}, asking("/api/v1/series",
			"match[]", `{n=~".+"}`, "start", "0")},
		{"many matches", 8, []string{tooComplex}, func() func(*stressClient) {
			matches := make([]string, 0, 4000)
			for range 2000 {
				matches = append(matches, "match[]", "m")
			}
			return anyOf(asking("/api/v1/series", matches...), asking("/federate", matches[:400]...), asking("/api/v1/labels",
				matches...))
		}()},
		{"status/tsdb", 16, []string{"200", totalLarge, tooLarge}, asking("/api/v1/status/tsdb", "limit", "10000")},
		{"federate", 10, []string{"200", totalLarge, tooLarge}, anyOf(asking("/federate", "match[]", "m"),
			asking("/federate", "match[]", `{n=~".+"}`))},
		{"explain", 10, []string{"200", totalLarge, tooLarge}, anyOf(
			asking("/internal/v1/explain", "selector", `{n=~".+"}`, "start", "0", "end", fmt.Sprint(now*1000), "analyze",
				"true"),
			asking("/internal/v1/explain", "selector", "m", "start", "0", "end", fmt.Sprint(now*1000)))},
		{"exemplars", 10, []string{"200", totalLarge, tooLarge}, asking("/api/v1/query_exemplars", "query", `{n=~".+"}`,
			"start", "0", "end", fmt.Sprint(now))},
		{"other pages", 16, []string{"200", "404", "400", "405"}, anyOf(asking("/metrics"), asking("/api/v1/status/flags"),
			asking("/api/v1/features"),
			asking("/api/v1/metadata", "limit", "1"), asking("/api/v1/status/self_metrics"), asking("/"),
			asking("/debug/pprof/heap"), asking("/-/ready"))},
	}
}

// readAttacks are remote reads.
func readAttacks() []stressAttack {
	const tooMuch, totalLarge = "400 --query.max-memory-bytes", "503 --query.max-total-memory-bytes"
	matcher := func(typ prompb.LabelMatcher_Type, name, value string) *prompb.LabelMatcher {
		return &prompb.LabelMatcher{Type: typ, Name: name, Value: value}
	}
	reading := func(streamed bool, queries int, matchers ...*prompb.LabelMatcher) func(*stressClient) {
		return posting("/api/v1/read", "application/x-protobuf", "snappy", func() []byte {
			req := &prompb.ReadRequest{}
			if streamed {
				req.AcceptedResponseTypes = []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}
			}
			for range queries {
				req.Queries = append(req.Queries, &prompb.Query{EndTimestampMs: time.Now().UnixMilli(), Matchers: matchers})
			}
			content, err := req.Marshal()
			if err != nil {
				panic(err)
			}
			return snappy.Encode(nil, content)
		})
	}
	everything := matcher(prompb.LabelMatcher_RE, "n", ".+")
	ballast := matcher(prompb.LabelMatcher_EQ, "__name__", "m")
	var patterns, equals []*prompb.LabelMatcher
	for range 20 {
		patterns = append(patterns, matcher(prompb.LabelMatcher_RE, "n", strings.Repeat("[^a]{1000}", 150)))
	}
	for range 999 {
		equals = append(equals, matcher(prompb.LabelMatcher_NRE, "n", "(x|y)*z+.*"))
	}
	return []stressAttack{
		{"reads of everything", 20, []string{"200", tooMuch, totalLarge}, anyOf(reading(false, 1, everything), reading(true,
			1, ballast))},
		{"reads of overlapping queries", 10, []string{"200", tooMuch, totalLarge, "400 --read.max-samples"},
			anyOf(reading(false, 1000, ballast), reading(true, 20, ballast))},
		{"reads of too many queries", 8, []string{"400 query too complex"}, posting("/api/v1/read",
			"application/x-protobuf", "snappy", func() []byte {
				return snappy.Encode(nil, []byte(strings.Repeat("\x0a\x00", 2_000_000)))
			})},
		{"reads by large regular expressions", 8, []string{"400 query too complex"}, reading(true, 1, patterns...)},
		{"reads by many matchers", 8, []string{"200", tooMuch, totalLarge}, reading(true, 1, append(equals, ballast)...)},
		{"reads that are too long", 8, []string{"413", "400 --read.max-request-bytes"}, anyOf(
			posting("/api/v1/read", "application/x-protobuf", "snappy", func() []byte { return make([]byte, 5<<20) }),
			posting("/api/v1/read", "application/x-protobuf", "snappy", func() []byte {
				return snappy.Encode(nil, make([]byte,
					5<<20))
			}))},
		{"reads that are left", 20, nil, leaving(anyOf(reading(true, 1, everything), reading(false, 1, ballast)))},
		{"garbage for reads", 8, []string{"400"}, posting("/api/v1/read", "application/x-protobuf", "snappy", func() []byte {
			return snappy.Encode(nil, []byte(strings.Repeat("\x0a\xff\xff\xff\xff\x0f", 1000)))
		})},
	}
}
