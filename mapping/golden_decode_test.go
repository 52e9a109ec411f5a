package mapping_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goldenPasses says which dump was the state of the tables when queries From to To-1 were answered. Sets that are not
// here have one state: all queries are asked of cells.jsonl.
var goldenPasses = map[string][]goldenPass{
	"append":         {{0, 11, "cells-after-query.jsonl"}, {0, 11, "cells.jsonl"}},
	"append-mixed":   {{1, 12, "cells-before.jsonl"}, {1, 12, "cells.jsonl"}},
	"append-repair":  {{0, 11, "cells-before.jsonl"}, {11, 22, "cells.jsonl"}},
	"cli":            {{0, 2, "cells-after-fsck-resolve.jsonl"}, {0, 2, "cells-after-fsck-compact.jsonl"}},
	"compact-fixdup": {{0, 11, "cells-before.jsonl"}, {11, 22, "cells.jsonl"}},
	"compact-query": {{0, 11, "cells-before.jsonl"}, {11, 22, "cells-after-query.jsonl"},
		{22, 24, "cells-before-second.jsonl"}, {22, 24, "cells.jsonl"}},
	"dtcs":            {{0, 11, "cells-before.jsonl"}, {11, 22, "cells.jsonl"}},
	"dtcs-min":        {{0, 11, "cells-before.jsonl"}, {11, 22, "cells.jsonl"}},
	"readraw-compact": {{0, 101, "input"}, {101, 202, "cells.jsonl"}},
	"readraw-fixdup":  {{0, 101, "input"}, {101, 202, "cells.jsonl"}},
}

type goldenPass struct {
	from, to int
	dump     string
}

// TestGolden_CellsDecodeToWhatOpenTSDBAnswered asks of each set's cells the queries that OpenTSDB was asked, as far as
// they are answered without aggregating or downsampling.
func TestGolden_CellsDecodeToWhatOpenTSDBAnswered(t *testing.T) {
	why := map[string]string{}
	for _, e := range goldenExceptions {
		for _, on := range e.on {
			why[on+" "+e.query] = e.why
		}
	}
	occurred := map[string]bool{}
	leftOut := map[string]int{}
	answers, refusals, series, points := 0, 0, 0, 0
	for _, set := range goldenSets(t) {
		passes := goldenPasses[set.name]
		if passes == nil {
			passes = []goldenPass{{0, len(set.queries), "cells.jsonl"}}
		}
		asked := map[int]bool{}
		for _, pass := range passes {
			for i, query := range set.queries[pass.from:pass.to] {
				asked[pass.from+i] = true
				where := fmt.Sprintf("%s, query %d on %s", set.name, pass.from+i, pass.dump)
				q, reason := parseGoldenQuery(query)
				if reason != "" {
					leftOut[reason]++
					continue
				}
				got, err := q.evaluate(set.schema, set.dumps[pass.dump])
				if errors.Is(err, errAggregated) {
					leftOut[err.Error()]++
					continue
				}
				diff := compareAnswer(t, got, err, query)
				key := set.name + "@" + strings.TrimSuffix(pass.dump, ".jsonl") + " " + q.String()
				switch {
				case diff != "" && why[key] == "":
					t.Errorf("%s: %s: %s", where, q, diff)
				case diff != "":
					occurred[key] = true
				case err != nil:
					refusals++
				default:
					answers++
					series += len(got)
					for _, dps := range got {
						points += len(dps)
					}
				}
			}
		}
		leftOut["asked when the tables were not dumped"] += len(set.queries) - len(asked)
	}
	for key := range why {
		if !occurred[key] {
			t.Errorf("exception %q did not occur: remove it", key)
		}
	}
	if answers == 0 || refusals == 0 || points == 0 {
		t.Errorf("compared %d answers, %d refusals, %d points, want more than 0 of each", answers, refusals, points)
	}
	t.Logf("equal: %d answers (%d series, %d points), %d refusals by both; excepted: %d",
		answers, series, points, refusals, len(occurred))
	for _, reason := range slices.Sorted(maps.Keys(leftOut)) {
		t.Logf("left out: %d, %s", leftOut[reason], reason)
	}
}

// compareAnswer is empty if the answer is OpenTSDB's, and else says in what they differ.
func compareAnswer(t *testing.T, got goldenAnswer, err error, query goldenQuery) string {
	t.Helper()
	switch {
	case err != nil && query.Status != 200:
		return ""
	case err != nil:
		return fmt.Sprintf("got error %v, want %.200s", err, query.Text)
	case query.Status != 200:
		return fmt.Sprintf("got %s, want status %d %.200s", got, query.Status, query.Text)
	}
	want := parseGoldenAnswer(t, query.Text)
	if !maps.EqualFunc(got, want, func(a, b map[int64]float64) bool { return maps.EqualFunc(a, b, sameValue) }) {
		return fmt.Sprintf("\n got %s\nwant %s", got, want)
	}
	return ""
}

// sameValue compares as far as JSON carries a number: any NaN is "NaN".
func sameValue(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}

// goldenAnswer has the points of each series, by a text of metric, tags and TSUID. Series without points are not in it:
// OpenTSDB lists some whose rows it met.
type goldenAnswer map[string]map[int64]float64

func (a goldenAnswer) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a)) {
		fmt.Fprintf(&b, "%s", name)
		for _, t := range slices.Sorted(maps.Keys(a[name])) {
			fmt.Fprintf(&b, " %d:%v", t, a[name][t])
		}
		b.WriteString("; ")
	}
	return "[" + b.String() + "]"
}

func (a goldenAnswer) add(metric string, tags map[string]string, tsuid []byte, dps map[int64]float64) {
	if len(dps) > 0 {
		a[fmt.Sprintf("%s%v %X", metric, tags, tsuid)] = dps
	}
}

func parseGoldenAnswer(t *testing.T, text string) goldenAnswer {
	t.Helper()
	var series []struct {
		Metric string
		Tags   map[string]string
		TSUIDs []string
		DPS    map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &series); err != nil {
		t.Fatalf("answer %.200s: %v", text, err)
	}
	answer := goldenAnswer{}
	for _, s := range series {
		dps := map[int64]float64{}
		for key, value := range s.DPS {
			at, err := strconv.ParseInt(key, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			// strconv reads the NaN that stands in quotes, too.
			if dps[at], err = strconv.ParseFloat(strings.Trim(string(value), `"`), 64); err != nil {
				t.Fatal(err)
			}
		}
		var tsuid []byte
		if len(s.TSUIDs) == 1 {
			tsuid, _ = hex.DecodeString(s.TSUIDs[0])
		}
		answer.add(s.Metric, s.Tags, tsuid, dps)
	}
	return answer
}
