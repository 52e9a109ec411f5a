package ingest_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/pack"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/pebble"
)

// BenchmarkReplay replays the journal of a writer that died with nine samples of each of 200,000 series in memory.
func BenchmarkReplay(b *testing.B) {
	const series, scrapes, perRequest = 200_000, 9, 2000
	large := func(c *ingest.Config) {
		buffered(c)
		c.CacheSize, c.Buffer.MaxBytes = 1<<20, 512<<20
	}
	for b.Loop() {
		b.StopTimer()
		st, err := pebble.Open(pebble.Config{
			Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler),
			Packing: pebble.Packing{Pack: pack.Append, Unpack: pack.Expand},
		})
		if err != nil {
			b.Fatal(err)
		}
		died := open(b, st, nil, large)
		if err := died.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		for scrape := range int64(scrapes) {
			for first := 0; first < series; first += perRequest {
				at := now + scrape*15_000
				died.clock.Store(at)
				var req request.Write
				for i := first; i < first+perRequest; i++ {
					add(&req, raw("__name__", fmt.Sprintf("metric_%d", i%500), "handler", "/api/v1/query", "instance",
						fmt.Sprintf("10.0.%d.%d:9090", i/500/250, i/500%250), "job", "node", "method", "get"), sample(at, float64(i)))
				}
				if _, err := died.Append(b.Context(), &req); err != nil {
					b.Fatal(err)
				}
			}
		}
		died.Abandon()
		next := open(b, st, nil, large)
		next.clock.Store(now + scrapes*15_000)
		b.StartTimer()
		if err := next.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		next.Abandon()
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(series*scrapes*b.N)/b.Elapsed().Seconds(), "samples/s")
}
