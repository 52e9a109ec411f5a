package ingest_test

import (
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store/storetest"
)

// Of two samples at one instant the later counts, also if the earlier is in a journal that is taken over after it.
func TestTakeOver_LaterSamplesCount(t *testing.T) {
	for name, interval := range map[string]time.Duration{"write-through": 0, "buffered": time.Hour} {
		t.Run(name, func(t *testing.T) {
			st := storetest.NewMem()
			start := func(interval time.Duration, clock int64) *database {
				db := open(t, st, nil, func(c *ingest.Config) {
					buffered(c)
					c.SingleProcess, c.Buffer.FlushInterval, c.Buffer.LeaseTTL = false, interval, 200*time.Millisecond
				})
				db.clock.Store(clock)
				if err := db.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				return db
			}
			dying, living := start(time.Hour, now), start(interval, now+10)
			dying.append(t, raw("__name__", "m"), sample(now, 1), sample(now+1, 1))
			dying.Abandon()
			living.append(t, raw("__name__", "m"), sample(now, 2))
			for left := 2; left > 1 || interval == 0 && left > 0; {
				leases, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
				if err != nil {
					t.Fatal(err)
				}
				left = len(leases)
			}
			for when := range 2 {
				for _, points := range living.all(t) {
					if points[now] != 2 || points[now+1] != 1 {
						t.Errorf("look %d: got %v, want 2, which came later, and 1", when, points)
					}
				}
				if err := living.FlushAll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := living.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
