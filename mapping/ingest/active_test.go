package ingest_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/storetest"
)

// series is a request with samples of the series from one number to another, the latter not included.
func seriesOf(name string, from, to int, at int64) *request.Write {
	req := new(request.Write)
	for i := from; i < to; i++ {
		add(req, raw("__name__", name, "i", fmt.Sprint(i)), sample(at, 1), sample(at+1, 2))
	}
	return req
}

// Beyond --write.max-active-series newcomers are refused, and leave nothing behind; series that are active go on,
// whether they are in the cache or not, and after an hour others take the place of those that have ended.
func TestAppend_BoundsActiveSeries(t *testing.T) {
	for name, mode := range map[string]func(*ingest.Config){"write-through": func(*ingest.Config) {}, "buffered": buffered} {
		for _, cacheSize := range []int{10_000, 1} {
			t.Run(fmt.Sprint(name, cacheSize), func(t *testing.T) {
				var log bytes.Buffer
				registry := prometheus.NewRegistry()
				mem := storetest.NewMem()
				db := open(t, mem, nil, func(c *ingest.Config) {
					c.Limits.Active, c.CacheSize, c.Registerer = 100, cacheSize, registry
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
					mode(c)
				})
				elapsed := time.Duration(0)
				db.SetElapsed(func() time.Duration { return elapsed })
				if err := db.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				at := now
				send := func(name string, from, to, written int) {
					t.Helper()
					at += 10
					db.clock.Add(10)
					got, err := db.Append(t.Context(), seriesOf(name, from, to, at))
					if err != nil || got.Written != 2*written || got.Refused[request.ReasonActiveSeries] != 2*(to-from-written) {
						t.Errorf("%s %d to %d: got %+v, %v, want %d series written", name, from, to, got, err, written)
					}
					for _, refused := range got.Examples {
						if text := refused.Error(); !strings.Contains(text, "--write.max-active-series allows 100") {
							t.Errorf("the text is %q", text)
						}
					}
				}
				send("known", 0, 90, 90)
				send("stranger", 0, 50, 10)
				names := dump(t, mem, "tsdb-uid")
				send("stranger", 50, 1000, 0)
				send("stranger", 10, 50, 0) // what it has UIDs of
				if after := dump(t, mem, "tsdb-uid"); after != names {
					t.Error("series that were refused got UIDs")
				}
				for range 14 { // two hours and some
					elapsed += 10 * time.Minute
					send("known", 0, 90, 90)
					send("known", 90, 91, btoi(elapsed >= 70*time.Minute))
				}
				send("stranger", 0, 50, 9)
				if n := gauge(t, registry, "promtsd_ingest_active_series"); n != 100 {
					t.Errorf("%.0f series are active", n)
				}
				for _, percent := range []string{"percent=80", "percent=100"} {
					if n := strings.Count(log.String(), percent); n < 1 || n > 3 {
						t.Errorf("the log tells %d times of %s:\n%s", n, percent, log.String())
					}
				}
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A replay refuses nothing, and its series are active.
func TestStart_AdmitsAllSeriesOfTheJournal(t *testing.T) {
	mem := storetest.NewMem()
	mode := func(most int) func(*ingest.Config) {
		return func(c *ingest.Config) {
			c.Limits.Active, c.SingleProcess = most, true
			buffered(c)
		}
	}
	db := open(t, mem, nil, mode(100))
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := db.Append(t.Context(), seriesOf("known", 0, 100, now)); err != nil || got.Written != 200 {
		t.Fatalf("got %+v, %v", got, err)
	}
	db.Abandon()

	db = open(t, mem, nil, mode(50))
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(db.all(t)); got != 100 {
		t.Errorf("after the replay there are %d series, want 100", got)
	}
	for name, want := range map[string]int{"known": 200, "stranger": 0} {
		if got, err := db.Append(t.Context(), seriesOf(name, 0, 100, now+100)); err != nil || got.Written != want {
			t.Errorf("%s: got %+v, %v, want %d written", name, got, err, want)
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Of a request that is accepted in part only that part is in the journal, so that a replay, which admits all, does not
// bring in what was refused. Exemplars stay with their series.
func TestStart_BringsInNoSeriesThatLimitsRefused(t *testing.T) {
	mem := storetest.NewMem()
	limited := func(c *ingest.Config) {
		buffered(c)
		c.Limits.Active = 100
	}
	db := open(t, mem, nil, limited)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := db.Append(t.Context(), seriesOf("known", 0, 99, now)); err != nil || got.Written != 198 {
		t.Fatalf("got %+v, %v", got, err)
	}
	mixed := seriesOf("stranger", 0, 5, now)                           // of which one is admitted,
	mixed.Encoding, mixed.Body = 1, []byte("a body that nobody reads") // and whose body has them all
	for i := range 5 {
		labels := request.AppendLabel(nil, "trace_id", fmt.Sprint(i))
		mixed.Exemplars = append(mixed.Exemplars, request.Exemplar{Series: i, T: now, V: float64(i), Labels: labels})
	}
	got, err := db.Append(t.Context(), mixed)
	if err != nil || got.Written != 2 || got.Refused[request.ReasonActiveSeries] != 8 || got.Exemplars.Written != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	want := db.all(t)
	exemplars := dump(t, mem, db.settings.Tables.Exemplars())
	db.Abandon()

	db = open(t, mem, nil, limited)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := db.all(t); len(got) != 100 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after the replay there are %d series, want 100, or their samples differ", len(got))
	}
	if got := dump(t, mem, db.settings.Tables.Exemplars()); got == "" || strings.Count(got, "\n") != strings.Count(exemplars, "\n") {
		t.Errorf("after the replay the exemplars are\n%swant\n%s", got, exemplars)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What the activity of a series takes of memory is what cmd/promtsd reckons with.
func TestActivity_Memory(t *testing.T) {
	const series, most = 200_000, 72
	before := heap()
	a := ingest.NewActivity(series)
	for i := range series {
		if !a.Admit(fmt.Sprint(i)) {
			t.Fatal("refused")
		}
	}
	if a.Admit("one more") {
		t.Error("one series more was admitted")
	}
	if each := (heap() - before) / series; each > most {
		t.Errorf("an active series takes %.0f bytes, want %d at most", each, most)
	} else {
		t.Logf("%.0f bytes", each)
	}
	runtime.KeepAlive(a)
}
