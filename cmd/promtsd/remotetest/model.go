package remotetest

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// Model is what a store must hold: for each label set, the bits that were written last at each time.
type Model map[string]*modelSeries

type modelSeries struct {
	labels labels.Labels
	bits   map[int64]uint64
}

// Write notes what was written.
func (m Model) Write(series []Series) {
	for _, s := range series {
		builder := labels.NewBuilder(labels.EmptyLabels())
		for _, l := range s.Labels {
			builder.Set(l.Name, l.Value) // an empty value is no label
		}
		m.Add(builder.Labels(), s.Samples...)
	}
}

// Add notes samples of one series.
func (m Model) Add(ls labels.Labels, samples ...request.Sample) {
	known := m[ls.String()]
	if known == nil {
		known = &modelSeries{ls, map[int64]uint64{}}
		m[ls.String()] = known
	}
	for _, p := range samples {
		known.bits[p.T] = math.Float64bits(p.V)
	}
}

// Read is what a query must answer: series in the order of their labels, samples in that of time.
func (m Model) Read(mint, maxt int64, matchers []*labels.Matcher) (answer []ReadSeries) {
	for _, s := range m {
		matches := func(matcher *labels.Matcher) bool { return matcher.Matches(s.labels.Get(matcher.Name)) }
		if slices.ContainsFunc(matchers, func(matcher *labels.Matcher) bool { return !matches(matcher) }) {
			continue
		}
		found := ReadSeries{Labels: s.labels}
		for _, t := range slices.Sorted(maps.Keys(s.bits)) {
			if mint <= t && t <= maxt {
				found.Samples = append(found.Samples, request.Sample{T: t, V: math.Float64frombits(s.bits[t])})
			}
		}
		if len(found.Samples) > 0 {
			answer = append(answer, found)
		}
	}
	slices.SortFunc(answer, func(a, b ReadSeries) int { return labels.Compare(a.Labels, b.Labels) })
	return answer
}

// AssertReads compares what promtsd answers in both forms about metrics whose names match a pattern with what was
// written, and samples with their bits.
func AssertReads(t *testing.T, url, pattern string, want Model) {
	t.Helper()
	matcher, err := labels.NewMatcher(labels.MatchRegexp, "__name__", pattern)
	if err != nil {
		t.Fatal(err)
	}
	wanted := want.Read(0, mapping.MaxTime, []*labels.Matcher{matcher})
	queries := []*prompb.Query{{
		StartTimestampMs: 0, EndTimestampMs: time.Now().Add(time.Hour).UnixMilli(),
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: pattern}},
	}}
	for _, form := range ResponseTypes {
		got, err := Read(t.Context(), http.DefaultClient, url, form, queries)
		if err != nil {
			t.Fatalf("read from %s in form %v: %v", url, form, err)
		}
		AssertSameSeries(t, fmt.Sprintf("read from %s in form %v", url, form), got[0], wanted)
	}
}

// AssertSameSeries compares two answers, whose series may be in any order.
func AssertSameSeries(t *testing.T, what string, got, want []ReadSeries) {
	t.Helper()
	texts := func(all []ReadSeries) map[string][]string {
		byLabels := map[string][]string{}
		for _, s := range all {
			// Labels, times and values, apart from each other.
			name := s.Labels.String()
			byLabels[name] = append(byLabels[name], strings.Fields(strings.TrimPrefix(s.String(), name))...)
		}
		return byLabels
	}
	if len(got) != len(want) {
		t.Errorf("%s: got %d series, want %d", what, len(got), len(want))
	}
	g, w := texts(got), texts(want)
	all := maps.Clone(g)
	maps.Copy(all, w)
	shown := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Equal(g[name], w[name]) || shown == 3 {
			continue
		}
		shown++
		at := 0
		for at < min(len(g[name]), len(w[name])) && g[name][at] == w[name][at] {
			at++
		}
		t.Errorf("%s: %s has %d samples, want %d; from sample %d on\ngot  %s\nwant %s",
			what, name, len(g[name]), len(w[name]), at, g[name][at:min(at+5, len(g[name]))], w[name][at:min(at+5, len(w[name]))])
	}
}

// SamplesIn counts the samples of series.
func SamplesIn(all []ReadSeries) (n int) {
	for _, s := range all {
		n += len(s.Samples)
	}
	return n
}
