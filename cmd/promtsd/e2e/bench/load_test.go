package bench_test

import (
	"context"
	"math"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// benchScrapes, a number, replaces how many scrapes the benchmarks of receivers send.
const benchScrapes = "PROMTSD_BENCH_SCRAPES"

// benchLoad is what a receiver is sent: series, each scraped every scrapeMs until about now.
type benchLoad struct {
	message         string
	series, scrapes int
	start           int64
	values          func(n int) benchValues
}

func newBenchLoad(b *testing.B, message string, series, scrapes int) benchLoad {
	if text := os.Getenv(benchScrapes); text != "" {
		var err error
		if scrapes, err = strconv.Atoi(text); err != nil || scrapes < 1 {
			b.Fatalf("%s=%q is not a number of scrapes", benchScrapes, text)
		}
	}
	now := time.Now().UnixMilli() / scrapeMs * scrapeMs
	return benchLoad{message, series, scrapes, now - int64(scrapes)*scrapeMs, newBenchValues}
}

func (l benchLoad) samples() int { return l.series * l.scrapes }

// check reads some of the series back, wherever they are by now.
func (l benchLoad) check(b *testing.B, url string) {
	metric := targetSeries(42)[0]
	answer, err := remotetest.Read(b.Context(), http.DefaultClient, url, prompb.ReadRequest_SAMPLES, []*prompb.Query{{
		StartTimestampMs: l.start - scrapeMs, EndTimestampMs: l.start + int64(l.scrapes)*scrapeMs,
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: metric.Name, Value: metric.Value}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	found := map[string]remotetest.ReadSeries{}
	for _, s := range answer[0] {
		found[s.Labels.String()] = s
	}
	want := 0
	for n := range l.series {
		ls := targetSeries(n)
		if ls[0].Value != metric.Value {
			continue
		}
		want++
		samples := found[remotetest.SortedLabels(ls).String()].Samples
		if len(samples) != l.scrapes {
			b.Fatalf("series %d has %d samples, want %d", n, len(samples), l.scrapes)
		}
		values := l.values(n)
		for scrape, got := range samples {
			want := values.next(scrape, l.start+int64(scrape)*scrapeMs)
			if got.T != want.T || math.Float64bits(got.V) != math.Float64bits(want.V) {
				b.Fatalf("scrape %d of series %d: got %v, want %v", scrape, n, got, want)
			}
		}
	}
	if len(found) != want {
		b.Fatalf("%d series of %s, want %d", len(found), metric.Value, want)
	}
}

// benchSource gives the bodies of one group of series in the order of time.
type benchSource interface {
	// next is the next body, nil after the last one. It is valid until the next call.
	next() ([]byte, error)
}

// prepared is a source of bodies that are there already.
type prepared struct{ bodies [][]byte }

func (p *prepared) next() ([]byte, error) {
	if len(p.bodies) == 0 {
		return nil, nil
	}
	body := p.bodies[0]
	p.bodies = p.bodies[1:]
	return body, nil
}

// making is a source that makes its bodies one by one.
type making struct {
	bodies *benchBodies
	left   int
}

func (m *making) next() ([]byte, error) {
	if m.left == 0 {
		return nil, nil
	}
	m.left--
	return m.bodies.next()
}

// making are sources that make each body when it is asked for.
func (l benchLoad) making() []benchSource {
	var sources []benchSource
	for first := 0; first < l.series; first += requestSamples {
		sources = append(sources, &making{newBenchBodies(l.message, l.values, first, l.start), l.scrapes})
	}
	return sources
}

// benchGroups are bodies made in advance, by group of requestSamples series, in the order of time.
type benchGroups [][][]byte

func (l benchLoad) prepare() (benchGroups, error) {
	sources := l.making()
	groups := make(benchGroups, len(sources))
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, source := range sources {
		g.Go(func() error {
			for ctx.Err() == nil {
				body, err := source.next()
				if body == nil || err != nil {
					return err
				}
				groups[i] = append(groups[i], append([]byte(nil), body...))
			}
			return nil
		})
	}
	return groups, g.Wait()
}

func (g benchGroups) sources() (sources []benchSource) {
	for _, bodies := range g {
		sources = append(sources, &prepared{bodies})
	}
	return sources
}
