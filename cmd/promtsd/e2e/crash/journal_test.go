package crash_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

const (
	// crashRounds, a number, replaces how often TestJournal_LosesNothingByKill kills in each of its cases.
	crashRounds = "PROMTSD_CRASH_ROUNDS"

	// eraRounds is after how many rounds the senders take new series and leave the old ones.
	eraRounds = 10
)

// TestJournal_LosesNothingByKill kills promtsd at random moments, again and again: under load, while it starts, and
// just after. After each round all that was acknowledged must be there with its bits, none twice, and nothing else. The
// samples come in any order, over several hours, and some come again or are replaced by another value at the same time.
func TestJournal_LosesNothingByKill(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	if text := os.Getenv(crashRounds); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("%s=%q is not a number of rounds", crashRounds, text)
		}
	}
	for _, c := range []struct {
		name string
		args []string // of promtsd serve
	}{
		{"defaults", nil},
		{"small memory", []string{"--write.max-buffered-bytes=1MiB"}},
		{"short hold", []string{"--write.flush-interval=1s"}},
		{"direct road", []string{"--write.flush-interval=0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat(c.args, promtest.FlagsFromEnv())
			promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{Args: args})
			s := newStorm(promtsd.URL())
			for round := range rounds {
				if round%eraRounds == 0 {
					s.begin()
				}
				stop := s.rage(t)
				s.strike(t, promtsd, round)
				stop()
				if (round+1)%eraRounds == 0 {
					s.check(t, s.era-1, s.era) // what is at rest by now, too
				} else {
					s.check(t, s.era)
				}
				if t.Failed() {
					t.Fatalf("after round %d of %d", round+1, rounds)
				}
			}
			promtsd.Stop()
			promtsd.Restart()
			s.check(t, s.era-1, s.era)
		})
	}
}

// strike ends promtsd in the middle of the load, mostly by kill -9, and returns when it runs again.
func (s *storm) strike(t *testing.T, promtsd *promtest.Process, round int) {
	upTo := func(limit time.Duration) time.Duration { return rand.N(limit) }
	promtest.Sleep(t.Context(), upTo(500*time.Millisecond))
	if round%8 == 2 {
		promtest.Sleep(t.Context(), 2*time.Second) // small memory is full by then
	}
	if round%8 == 5 {
		promtsd.Stop() // and its status is 0
	} else {
		promtsd.Kill()
	}
	for range rand.IntN(3) {
		promtsd.KillDuringStart(upTo(150 * time.Millisecond))
	}
	promtsd.Restart()
	if round%2 == 0 {
		promtest.Sleep(t.Context(), upTo(50*time.Millisecond))
		promtsd.Kill()
		promtsd.Restart()
	}
}

// check reads the series of some eras, and fails the test for each sample that is not as it must be.
func (s *storm) check(t *testing.T, eras ...int) {
	t.Helper()
	var values []string
	for _, era := range eras {
		values = append(values, strconv.Itoa(era))
	}
	query := &prompb.Query{
		StartTimestampMs: 0, EndTimestampMs: time.Now().Add(time.Hour).UnixMilli(),
		Matchers: []*prompb.LabelMatcher{
			{Type: prompb.LabelMatcher_EQ, Name: "job", Value: "storm"},
			{Type: prompb.LabelMatcher_RE, Name: "era", Value: strings.Join(values, "|")},
		},
	}
	form := remotetest.ResponseTypes[rand.IntN(len(remotetest.ResponseTypes))]
	answer, err := remotetest.Read(t.Context(), http.DefaultClient, s.url, form, []*prompb.Query{query})
	if err != nil {
		t.Fatalf("read in form %v: %v", form, err)
	}
	unseen := map[string]*stormSeries{}
	requests, acked := 0, 0
	for _, sender := range s.senders {
		requests, acked = requests+sender.requests, acked+sender.acked
		for _, series := range sender.series {
			if slices.Contains(eras, series.era) {
				unseen[remotetest.SortedLabels(series.labels).String()] = series
			}
		}
	}
	var problems []string
	samples := 0
	for _, found := range answer[0] {
		name := found.Labels.String()
		series := unseen[name]
		if series == nil {
			problems = append(problems, "series "+name+" was never sent, or comes twice")
			continue
		}
		delete(unseen, name)
		samples += len(found.Samples)
		problems = append(problems, series.compare(found)...)
	}
	for name, series := range unseen {
		for _, p := range series.compare(remotetest.ReadSeries{}) {
			problems = append(problems, name+" is not there: "+p)
		}
	}
	for _, p := range problems[:min(len(problems), 10)] {
		t.Errorf("form %v: %s", form, p)
	}
	if len(problems) > 10 {
		t.Errorf("form %v: %d problems in all", form, len(problems))
	}
	if len(eras) > 1 {
		t.Logf("%d of %d requests were acknowledged; %d samples in %d series", acked, requests, samples, len(answer[0]))
	}
}

// compare says how what was found differs from what must or may be there.
func (s *stormSeries) compare(found remotetest.ReadSeries) (problems []string) {
	problem := func(t int64, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s at %d: ", found.Labels, t)+fmt.Sprintf(format, args...))
	}
	for i, p := range found.Samples {
		bits := math.Float64bits(p.V)
		f := s.samples[p.T]
		switch {
		case i > 0 && p.T <= found.Samples[i-1].T:
			problem(p.T, "comes after a sample at %d", found.Samples[i-1].T)
		case f == nil:
			problem(p.T, "%016x was never sent", bits)
		case !(f.acked && f.bits == bits) && !slices.Contains(f.maybe, bits):
			problem(p.T, "got %016x, want %s", bits, f)
		}
	}
	byTime := func(p request.Sample, t int64) int { return cmp.Compare(p.T, t) }
	for _, t := range slices.Sorted(maps.Keys(s.samples)) {
		_, there := slices.BinarySearchFunc(found.Samples, t, byTime)
		if f := s.samples[t]; f.acked && !there {
			problem(t, "is lost, want %s", f)
		}
	}
	return problems
}

func (f *fate) String() string {
	return fmt.Sprintf("%016x (acknowledged: %t) or one of %016x", f.bits, f.acked, f.maybe)
}

// TestStorm_SeesWhatIsWrong is a test of the test: each way in which promtsd could fail it is found.
func TestStorm_SeesWhatIsWrong(t *testing.T) {
	series := &stormSeries{samples: map[int64]*fate{
		10: {acked: true, bits: math.Float64bits(1)},
		20: {acked: true, bits: math.Float64bits(2), maybe: []uint64{math.Float64bits(3)}},
		30: {maybe: []uint64{math.Float64bits(4)}},
	}}
	for _, c := range []struct {
		name  string
		found []request.Sample
		want  string // a part of the only problem; none if empty
	}{
		{"acknowledged only", []request.Sample{{T: 10, V: 1}, {T: 20, V: 2}}, ""},
		{"unanswered, too", []request.Sample{{T: 10, V: 1}, {T: 20, V: 3}, {T: 30, V: 4}}, ""},
		{"lost", []request.Sample{{T: 10, V: 1}}, "at 20: is lost"},
		{"other bits", []request.Sample{{T: 10, V: math.Copysign(1, -1)}, {T: 20, V: 2}}, "at 10: got bff0000000000000"},
		{"other bits of an unanswered one", []request.Sample{{T: 10, V: 1}, {T: 20, V: 2}, {T: 30, V: 0}}, "at 30: got 0"},
		{"never sent", []request.Sample{{T: 10, V: 1}, {T: 11, V: 1}, {T: 20, V: 2}}, "at 11: 3ff0000000000000 was never"},
		{"twice", []request.Sample{{T: 10, V: 1}, {T: 10, V: 1}, {T: 20, V: 2}}, "at 10: comes after a sample at 10"},
	} {
		got := series.compare(remotetest.ReadSeries{Samples: c.found})
		if c.want == "" && len(got) == 0 {
			continue
		}
		if c.want == "" || len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
