package ingest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/storetest"
)

// The clock stands still while samples that do not follow each other drive cell timestamps ahead of it, and moves
// hardly while promtsd is started again: what comes then still counts over what is there.
func TestStart_CellTimestampsGoOnAboveThoseGivenBefore(t *testing.T) {
	for name, change := range map[string]func(*ingest.Config){
		"write-through": func(c *ingest.Config) { c.SingleProcess = true }, "buffered": buffered,
	} {
		t.Run(name, func(t *testing.T) {
			st := storetest.NewMem()
			for round := range 4 {
				db := open(t, st, nil, change)
				db.clock.Add(int64(round) * 21)
				if err := db.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					db.append(t, raw("__name__", "m"), sample(now+1000, float64(-i)), sample(now, float64(round*100)+float64(i)/3))
					if err := db.FlushAll(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := float64(round*100) + 19.0/3
				for _, points := range read(t, st, db.settings.Schema) {
					if points[now] != want || points[now+1000] != -19 {
						t.Fatalf("round %d: got %v, want %v and -19", round, points, want)
					}
				}
			}
		})
	}
}

// The clock steps back, and of two samples at one instant the one that was acknowledged later still counts: when it is
// read from memory, stored, replayed here or by another process, and after a stop.
func TestAppend_LaterSamplesCountThoughTheClockStepsBack(t *testing.T) {
	for mode, change := range map[string]func(*ingest.Config){
		"write-through": func(c *ingest.Config) { c.SingleProcess = true }, "buffered": buffered,
	} {
		for end, next := range map[string]func(t *testing.T, db *database) *database{
			"none": func(_ *testing.T, db *database) *database { return db },
			"flush": func(t *testing.T, db *database) *database {
				if err := db.FlushAll(t.Context()); err != nil {
					t.Fatal(err)
				}
				return db
			},
			"kill": func(t *testing.T, db *database) *database {
				db.Abandon()
				return open(t, db.store, nil, change)
			},
			"takeover": func(t *testing.T, db *database) *database {
				db.Abandon()
				other := open(t, db.store, nil, func(c *ingest.Config) {
					change(c)
					c.SingleProcess = false
				})
				leases, err := journal.Leases(t.Context(), db.store, catalog.DefaultTables())
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range leases {
					if err := other.TakeOver(t.Context(), l, 7); err != nil {
						t.Fatal(err)
					}
				}
				return open(t, db.store, nil, change)
			},
			"stop": func(t *testing.T, db *database) *database {
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				return open(t, db.store, nil, change)
			},
		} {
			t.Run(mode+" "+end, func(t *testing.T) {
				db := open(t, storetest.NewMem(), nil, change)
				if err := db.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				for step := range 6 {
					clock := now - int64(step)*3600_000
					db.clock.Store(clock)
					db.append(t, raw("__name__", "m"), sample(now-mapping.HourMs*24, float64(step)+0.5), sample(clock, 1))
					if step%2 == 0 {
						if err := db.FlushAll(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if after := next(t, db); after != db {
						db = after
						db.clock.Store(clock - 1800_000)
						if err := db.Start(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					for _, points := range db.all(t) {
						if got, want := points[now-mapping.HourMs*24], float64(step)+0.5; got != want {
							t.Fatalf("step %d: got %v, want %v", step, got, want)
						}
					}
				}
				db.Abandon()
			})
		}
	}
}

// A clock was years ahead for a while. How far ahead of the clock samples may be is told by the clock all the same.
func TestAppend_MeasuresTheFutureByTheClock(t *testing.T) {
	db := open(t, storetest.NewMem(), nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const years = 5 * 365 * 24 * mapping.HourMs
	db.clock.Store(now + years)
	db.append(t, raw("__name__", "m"), sample(now, 1), sample(now+years, 1))
	db.clock.Store(now)
	db.append(t, raw("__name__", "m"), sample(now, 2), sample(now+limits.Future.Milliseconds(), 1))
	var req request.Write
	add(&req, raw("__name__", "m"), sample(now+limits.Future.Milliseconds()+1, 1))
	got, err := db.Append(t.Context(), &req)
	if err != nil || got.Refused[request.ReasonTimestamp] != 1 || got.Written != 0 {
		t.Errorf("a sample %v ahead: got %+v, %v, want it refused", limits.Future, got, err)
	}
	if text := fmt.Sprint(got.Examples); !strings.Contains(text, "is 10m0.001s ahead of the clock") {
		t.Errorf("it says %q", text)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, points := range read(t, db.store, db.settings.Schema) {
		if points[now] != 2 {
			t.Errorf("got %v, want 2, which was written after the clock stepped back", points[now])
		}
	}
}

// A timestamp is reserved now and then, not with each request.
func TestAppend_ReservesArrivalTimesRarely(t *testing.T) {
	st := storetest.Faulty(storetest.NewMem())
	db := open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.append(t, raw("__name__", "m"), sample(now, 1))
	before := st.Calls(storetest.CheckAndPut)
	for i := range int64(10_000) {
		db.clock.Store(now + i)
		db.append(t, raw("__name__", "m"), sample(now+i, 1))
	}
	if n := st.Calls(storetest.CheckAndPut) - before; n > 12 {
		t.Errorf("10,000 requests in 10 s changed what is reserved %d times", n)
	}
	db.Abandon()
}
