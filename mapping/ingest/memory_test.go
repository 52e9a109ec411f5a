package ingest_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/storetest"
)

// heap is what is reachable.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what pools let go of the first time
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func gauge(t testing.TB, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// What is counted of samples that wait, and of the series cache, is what they take of memory, whatever their shape.
func TestBufferedBytes_AreTheMemoryOfSamples(t *testing.T) {
	const hour = mapping.HourMs
	base := int64(mapping.BaseTime(now)) * 1000
	for _, c := range []struct {
		name            string
		series, samples int
		step            int64 // of the samples of a series; 0: the time of the sample is that of the request
		requests        int   // that the samples of a series come in; they are given to many series at once
		histograms      bool
		cache           int
	}{
		{name: "one sample a series", series: 10_000, samples: 1},
		{name: "5 samples a series, staged", series: 10_000, samples: 5, step: 1000, requests: 5},
		{name: "50 samples a series", series: 5_000, samples: 50, step: 1000, requests: 10},
		{name: "a sample every hour", series: 200, samples: 500, step: hour},
		{name: "a sample every hour, newest first", series: 200, samples: 500, step: -hour},
		{name: "5 samples every hour", series: 200, samples: 1000, step: hour / 5},
		{name: "long rows", series: 50, samples: 20_000, step: 100, requests: 4},
		{name: "histograms", series: 2000, samples: 10, step: 1000, histograms: true},
		{name: "series that the cache has dropped", series: 20_000, samples: 1, cache: 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.requests = max(c.requests, 1)
			st := storetest.NewMem()
			forget := discard{st}
			labels := func(i int) []byte {
				return raw("__name__", "http_requests_total", "code", "200", "instance", fmt.Sprint("10.1.2.", i%250, ":9100"),
					"job",
					fmt.Sprint("node", i/250), "path", "/api/v1/items")
			}
			db := open(t, st, nil, nil)
			var names request.Write
			for i := range c.series {
				add(&names, labels(i), sample(now, 1))
			}
			if _, err := db.Append(t.Context(), &names); err != nil { // so that all UIDs are known
				t.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			config := db.config
			config.Store, config.Apply, config.Registerer = forget, forget.Apply, registry
			config.Buffer = ingest.Buffer{FlushInterval: time.Hour, MaxBytes: 1 << 40, Merge: true}
			config.SingleProcess, config.CacheSize = true, 1_000_000
			if c.cache > 0 {
				config.CacheSize = c.cache
			}
			db.Appender = nil
			names = request.Write{}

			before := heap()
			a := storetest.Must(ingest.New(config))
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer a.Abandon()
			perRequest := c.samples / c.requests
			for n := range c.requests {
				for first := 0; first < c.series; first += 500 {
					var req request.Write
					for i := first; i < min(first+500, c.series); i++ {
						var samples []request.Sample
						for k := range perRequest {
							at := base + int64(n*perRequest+k)*c.step
							if c.step >= hour/5 {
								at -= int64(c.samples) * c.step
							}
							samples = append(samples, sample(at, float64(i+k)*1.1))
						}
						if !c.histograms {
							add(&req, labels(i), samples...)
							continue
						}
						add(&req, labels(i))
						for _, s := range samples {
							addHistogram(t, &req, s.T, &histogram.Histogram{Sum: s.V, PositiveSpans: []histogram.Span{{Length: 20}},
								PositiveBuckets: make([]int64, 20)})
						}
					}
					if _, err := a.Append(t.Context(), &req); err != nil {
						t.Fatal(err)
					}
				}
			}
			held, cached := gauge(t, registry, "promtsd_ingest_buffered_bytes"),
				gauge(t, registry, "promtsd_ingest_cached_series_bytes")
			used := heap() - before
			t.Logf("%.0f bytes are used, counted are %.0f of samples and %.0f of the cache: %.2f", used, held, cached,
				(held+cached)/used)
			if math.Abs(used-held-cached) > 0.15*used {
				t.Errorf("%.0f bytes are used, counted are %.0f", used, held+cached)
			}
			if err := a.FlushAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			runtime.KeepAlive(db)
		})
	}
}

// When all is flushed and its series are forgotten, nothing is counted.
func TestBufferedBytes_AreNoneInTheEnd(t *testing.T) {
	registry := prometheus.NewRegistry()
	db := open(t, storetest.NewMem(), nil, func(c *ingest.Config) {
		buffered(c)
		c.Buffer.MaxBytes, c.CacheSize, c.Registerer = 1<<20, 1, registry
	})
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for i := range 2000 {
			at := now - int64(i%7)*mapping.HourMs + int64(round)
			db.append(t, raw("__name__", "m", "s", fmt.Sprint(i%500)), sample(at, 1), sample(at-2*mapping.HourMs, 2))
		}
		db.clock.Add(1000)
	}
	db.clock.Add(2 * mapping.HourMs) // all is merged
	for range 2 {
		if err := db.FlushAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 { // drives the others out
		add := raw("__name__", "m", "other", fmt.Sprint(i))
		var req request.Write
		req.Series = append(req.Series, request.Series{Labels: add})
		if _, err := db.Append(t.Context(), &req); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := gauge(t, registry, "promtsd_ingest_buffered_bytes"); held != 0 {
		t.Errorf("%.0f bytes are counted when nothing is held", held)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A series cache of a number of series is bounded in memory, however long their labels.
func TestSeriesCache_IsBoundedByMemory(t *testing.T) {
	const most = 2048
	registry := prometheus.NewRegistry()
	db := open(t, storetest.NewMem(), nil, func(c *ingest.Config) {
		c.CacheSize, c.Registerer, c.Limits.LabelValue = most, registry, 8192
	})
	for i := range 4000 {
		db.append(t, raw("__name__", "m", "long", fmt.Sprint(i%100, strings.Repeat("x", 8000)), "s", fmt.Sprint(i/100)),
			sample(now, 1))
		if bytes := gauge(t, registry, "promtsd_ingest_cached_series_bytes"); bytes > most*1024 {
			t.Fatalf("after %d series of 8 KB the cache of %d series takes %.0f bytes", i, most, bytes)
		}
	}
	if entries := gauge(t, registry, "promtsd_ingest_cached_series"); entries < most/16 {
		t.Errorf("the cache holds %.0f series", entries)
	}
}

// The rows of a series cost about the same each, in whatever order they come.
func TestAppend_ManyHoursOfASeriesNewestFirst(t *testing.T) {
	db := open(t, storetest.NewMem(), nil, buffered)
	forget := discard{db.store}
	config := db.config
	config.Store, config.Apply = forget, forget.Apply
	a := storetest.Must(ingest.New(config))
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.Abandon()
	fill := func(name string, hours int) time.Duration {
		begin := time.Now()
		for i := 0; i < hours; i += 2000 {
			var samples []request.Sample
			for k := i; k < i+2000; k++ {
				samples = append(samples, sample(now-int64(k)*mapping.HourMs, 1))
			}
			var req request.Write
			add(&req, raw("__name__", name), samples...)
			if _, err := a.Append(context.Background(), &req); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.FlushAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	fill("warm", 20_000)
	few, many := fill("few", 20_000), fill("many", 400_000)
	t.Logf("20,000 hours take %v, 400,000 take %v", few, many)
	if many > 20*8*few+time.Second {
		t.Errorf("20,000 hours of a series take %v, and 20 times as many %v", few, many)
	}
}

// A replay of more than fits into --write.max-buffered-bytes stores on its way, as often as need be.
func TestStart_ReplaysInBoundedMemory(t *testing.T) {
	const series, scrapes, most = 500, 300, 1 << 20
	st := storetest.NewMem()
	died := open(t, st, nil, buffered)
	if err := died.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for scrape := range int64(scrapes) {
		died.clock.Store(now + scrape*1000)
		var req request.Write
		for i := range series {
			add(&req, raw("__name__", "m", "s", fmt.Sprint(i)), sample(now+scrape*1000, float64(i)+1/float64(scrape+1)))
		}
		if _, err := died.Append(t.Context(), &req); err != nil {
			t.Fatal(err)
		}
	}
	died.Abandon()

	registry := prometheus.NewRegistry()
	spied := &spyOnApply{Store: st}
	next := open(t, spied, nil, func(c *ingest.Config) {
		buffered(c)
		c.Buffer.MaxBytes, c.Registerer = most, registry
	})
	next.clock.Store(now + scrapes*1000)
	var peak atomic.Int64
	spied.before = func() {
		held := int64(gauge(t, registry, "promtsd_ingest_buffered_bytes"))
		for last := peak.Load(); held > last && !peak.CompareAndSwap(last, held); last = peak.Load() {
		}
	}
	if err := next.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := peak.Load(); held > most || held < most/4 {
		t.Errorf("%d bytes of samples were held at most, want no more than %d and a good part of that", held, most)
	}
	found := 0
	for _, samples := range next.all(t) {
		found += len(samples)
	}
	if found != series*scrapes {
		t.Errorf("%d samples are there, want %d", found, series*scrapes)
	}
	if err := next.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While the journal of another is replayed, the two together hold no more than one may.
func TestTakeOver_HasAPartOfTheMemory(t *testing.T) {
	const most = 4 << 20
	st := storetest.NewMem()
	died := open(t, st, nil, shared(time.Hour))
	if err := died.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		died.append(t, raw("__name__", "m", "s", fmt.Sprint(i)), sample(now, 1))
	}
	died.Abandon()
	leases, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	spied := &spyOnApply{Store: st}
	heir := open(t, spied, nil, func(c *ingest.Config) {
		shared(time.Hour)(c)
		c.Buffer.MaxBytes, c.Registerer = most, registry
	})
	var during atomic.Int64
	spied.before = func() { during.Store(int64(gauge(t, registry, "promtsd_ingest_buffered_bytes"))) }
	if err := heir.TakeOver(t.Context(), leases[0], 7); err != nil {
		t.Fatal(err)
	}
	if held := during.Load(); held != most/4 {
		t.Errorf("while it replays, %d bytes are counted as held, want %d, a quarter", held, most/4)
	}
	if held := gauge(t, registry, "promtsd_ingest_buffered_bytes"); held != 0 {
		t.Errorf("then %.0f bytes are held, want 0", held)
	}
}
