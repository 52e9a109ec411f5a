package promtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

// scrapeItself is the configuration of a server that scrapes itself often enough for a short test.
const scrapeItself = `
global:
  scrape_interval: 200ms
scrape_configs:
- job_name: self
  static_configs:
  - targets: ["` + promtest.Self + `"]
`

// waitForUp returns the time of a query that finds up == 1.
func waitForUp(t *testing.T, s *promtest.Server) time.Time {
	t.Helper()
	var at time.Time
	promtest.Until(t, "the server has scraped itself", func(ctx context.Context) error {
		at = time.Now()
		r, err := s.Query(ctx, `up == 1`, at)
		if err == nil && r.Samples() == 0 {
			err = errors.New("no sample of up == 1")
		}
		return err
	})
	return at
}

func TestStart_ServerScrapesItselfAndStops(t *testing.T) {
	s := promtest.Start(t, promtest.Config{YAML: scrapeItself})
	at := waitForUp(t, s)

	r, err := s.Query(t.Context(), "up", at)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{__name__="up", instance=%q, job="self"}`, s.Addr())
	if r.Type != "vector" || len(r.Series) != 1 || r.Series[0].Labels != want || r.Series[0].Points[0].V != "1" {
		t.Errorf("up: got %+v, want one series %s with value 1", r, want)
	}

	sets, err := s.Series(t.Context(), at.Add(-time.Minute), at, "up")
	if err != nil || len(sets) != 1 || sets[0] != want {
		t.Errorf("series of up: got %q, %v, want %s", sets, err, want)
	}
	minute := promtest.Range{Start: at.Add(-time.Minute), End: at, Step: 15 * time.Second}
	over, err := s.QueryRange(t.Context(), "vector(1)", minute)
	if err != nil || over.Type != "matrix" || over.Samples() != 5 {
		t.Errorf("vector(1) over a minute: got %+v, %v, want a matrix of 5 samples", over, err)
	}
	if _, err := s.Query(t.Context(), "up{", at); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("up{: got error %v, want one that says parse error", err)
	}

	s.Stop()
	if resp, err := http.Get(s.URL() + "/-/ready"); err == nil {
		resp.Body.Close()
		t.Errorf("after Stop %s still answers", s.URL())
	}
}

func TestQuery_KeepsWhatFloatsCanBe(t *testing.T) {
	s := promtest.Start(t, promtest.Config{})
	at := time.UnixMilli(1_700_000_000_123)
	for _, c := range []struct{ expr, typ, value string }{
		{"vector(0) * -1", "vector", "-0"},
		{"vector(0)", "vector", "0"},
		{"vector(NaN)", "vector", "NaN"},
		{"vector(-Inf)", "vector", "-Inf"},
		{"0.1", "scalar", "0.1"},
		{fmt.Sprint(math.MaxFloat64), "scalar", "1797693134862315700" + strings.Repeat("0", 290)},
		{`"text"`, "string", "text"},
	} {
		r, err := s.Query(t.Context(), c.expr, at)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		want := promtest.Result{Type: c.typ, Series: []promtest.Series{
			{Labels: "{}", Points: []promtest.Point{{T: at.UnixMilli(), V: c.value}}},
		}}
		if diff := promtest.Diff(want, r); diff != "" {
			t.Errorf("%s (- wanted, + got):\n%s", c.expr, diff)
		}
	}
}

func TestRestart_AfterKillKeepsAddressAndData(t *testing.T) {
	s := promtest.Start(t, promtest.Config{YAML: scrapeItself})
	at := waitForUp(t, s)
	addr := s.Addr()

	s.Kill()
	if _, err := s.Query(t.Context(), "up", at); err == nil {
		t.Error("after Kill the server still answers")
	}
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("after Restart the address is %s, want %s", s.Addr(), addr)
	}
	// Prometheus does not sync each sample to disk, but what it has written outlives the process.
	r, err := s.Query(t.Context(), "up", at)
	if err != nil || r.Samples() != 1 {
		t.Errorf("up as of before Kill: got %+v, %v, want one sample", r, err)
	}
}

func TestAssertSame_TellsWhereServersDiffer(t *testing.T) {
	a := promtest.Start(t, promtest.Config{YAML: scrapeItself})
	b := promtest.Start(t, promtest.Config{})
	at := waitForUp(t, a)
	over := promtest.Range{Start: at.Add(-2 * time.Second), End: at, Step: 100 * time.Millisecond}
	queries := func(exprs ...string) promtest.Queries {
		return promtest.Queries{Exprs: exprs, At: []time.Time{at}, Ranges: []promtest.Range{over}}
	}

	t.Run("a server agrees with itself", func(t *testing.T) {
		promtest.AssertSame(t, a, a, queries("up", "go_goroutines", "scrape_samples_scraped / 0"))
		promtest.AssertSame(t, a, b, queries("vector(time())", "NaN"))
	})

	for _, c := range []struct {
		name, expr string
		wanted     *promtest.Server
		got        *promtest.Server
		failures   []string // a part of each failure, in order
	}{
		{"missing series", "up", a, b, []string{`- {__name__="up"`, `- {__name__="up"`}},
		{"extra series", "up", b, a, []string{`+ {__name__="up"`, `+ {__name__="up"`, "no sample at any of the times"}},
		{"nothing compared", "up", b, b, []string{"no sample at any of the times"}},
		{"other value", `count({job="self"}) or vector(0)`, a, b, []string{"+   20", "+   20"}},
		{"refused", "up{", a, b, []string{"parse error", "parse error", "no sample"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			record := &recorder{TB: t}
			promtest.AssertSame(record, c.wanted, c.got, queries(c.expr))
			if len(record.failures) != len(c.failures) {
				t.Fatalf("got %d failures, want %d:\n%s", len(record.failures), len(c.failures), record)
			}
			for i, want := range c.failures {
				if !strings.Contains(record.failures[i], want) {
					t.Errorf("failure %d: got\n%s\nwant it to say %q", i, record.failures[i], want)
				}
			}
		})
	}
}

// recorder is a test whose failures are the result of another.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) String() string { return strings.Join(r.failures, "\n") }
