package ingest_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// shared is buffered mode on a store that others have open, too.
func shared(lease time.Duration) func(*ingest.Config) {
	return func(c *ingest.Config) {
		buffered(c)
		c.SingleProcess, c.Buffer.LeaseTTL = false, lease
	}
}

// nextLife opens the store as a process does that starts after all others have died, and returns what it finds.
func nextLife(t *testing.T, st store.Store) map[string]map[int64]float64 {
	t.Helper()
	db := open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := db.all(t)
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := cellsOf(t, st, "promtsd-journal"); n > 0 {
		t.Errorf("%d entries are left in the journal", n)
	}
	return found
}

// A writer lives on while others take its journal for that of a dead one, again and again: as with clocks that stand
// still, or flags that differ. Whatever it acknowledges is there in the next life.
func TestTakeOver_OfALivingWriterLosesNothing(t *testing.T) {
	st := storetest.NewMem()
	living := open(t, st, nil, shared(time.Hour)) // its lease is good by its own clock all the time
	if err := living.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, acknowledged := map[int64]float64{}, 0
	stop := make(chan struct{})
	var taking sync.WaitGroup
	taking.Go(func() {
		for holder := journal.ID(1); ; holder++ {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(2 * time.Millisecond)):
			}
			other := open(t, st, nil, shared(time.Hour))
			leases, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
			if err != nil {
				t.Error(err)
			}
			for _, l := range leases {
				if err := other.TakeOver(t.Context(), l, holder); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range int64(4000) {
		at, v := now+i%50, float64(i)
		living.clock.Store(now + i)
		if try(t, living, raw("__name__", "m"), sample(at, v)) == nil {
			want[at] = v
			acknowledged++
		} else {
			delete(want, at) // one or the other
		}
		if i%100 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	taking.Wait()
	living.Abandon()
	if acknowledged < 10 || acknowledged == 4000 {
		t.Errorf("%d of 4000 were acknowledged: this is no test", acknowledged)
	}
	for _, points := range nextLife(t, st) {
		for at, v := range want {
			if points[at] != v {
				t.Errorf("at %d: got %v, %v was acknowledged last", at-now, points[at], v)
			}
		}
	}
}

// By its own flag the first is not dead, whatever the others'.
func TestTakeOver_LeavesALeaseToItsOwnTime(t *testing.T) {
	st := storetest.NewMem()
	long, short := open(t, st, nil, shared(time.Hour)), open(t, st, nil, shared(20*time.Millisecond))
	for _, db := range []*database{long, short} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := db.Start(ctx); err != nil && db == long {
			t.Fatal(err)
		}
		cancel()
	}
	if err := try(t, long, raw("__name__", "m"), sample(now, 1)); err != nil {
		t.Errorf("the one with the longer lease: %v", err)
	}
	leases, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if l.Writer == long.Writer() && l.Holder != l.Writer {
			t.Errorf("its journal was taken over: %+v", l)
		}
	}
	long.Abandon()
}

// Entries without a lease are replayed at the start, and replace nothing that came later.
func TestStart_ReplaysEntriesWithoutALease(t *testing.T) {
	for name, interval := range map[string]time.Duration{"write-through": 0, "buffered": time.Hour} {
		t.Run(name, func(t *testing.T) {
			st := storetest.NewMem()
			db := open(t, st, nil, buffered)
			if err := db.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			write := func(clock int64, samples ...request.Sample) {
				db.clock.Store(clock)
				db.append(t, raw("__name__", "m"), samples...)
			}
			write(now, sample(now, 1), sample(now+1, 1), sample(now+2, 1))
			write(now+10, sample(now+1, 2))
			write(now+20, sample(now+2, 3))
			kept := entriesOf(t, st)
			if err := db.Close(t.Context()); err != nil { // all is stored
				t.Fatal(err)
			}
			// The first and the last are there again, as if they had been on their way for long, and one that is not stored.
			var b store.Batch
			for _, i := range []int{0, 2} {
				b.Put("promtsd-journal", kept[i].Key, catalog.FamilySystem, nil, kept[i].Cells[0].Timestamp, kept[i].Cells[0].Value)
			}
			var req request.Write
			add(&req, raw("__name__", "m"), sample(now+3, 4), sample(now+2, 4))
			entry := journal.Entry{
				Encoding: request.EncodingFlat, Body: req.AppendFlat(nil, nil), Arrived: now + 15, Latest: now + 1000,
				MaxLabels: 10, MaxLabelName: 100, MaxLabelValue: 100,
			}
			b.Put("promtsd-journal", []byte("\x012345678\x00\x00\x00\x00\x00\x00\x00\x09"), catalog.FamilySystem, nil, 1,
				journal.AppendEntry(nil, &entry))
			if err := st.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			db = open(t, st, nil, func(c *ingest.Config) {
				buffered(c)
				c.Buffer.FlushInterval = interval
			})
			if err := db.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, points := range db.all(t) {
				if fmt.Sprint(points) != fmt.Sprint(map[int64]float64{now: 1, now + 1: 2, now + 2: 3, now + 3: 4}) {
					t.Errorf("got %v", points)
				}
			}
			if n := cellsOf(t, st, "promtsd-journal"); n > 0 {
				t.Errorf("%d entries are left in the journal", n)
			}
			if err := db.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// entriesOf are the rows of the journal.
func entriesOf(t *testing.T, st store.Store) []store.Row {
	t.Helper()
	rows, err := storetest.Collect(st.Scan(t.Context(), store.Scan{Table: "promtsd-journal"}))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// What comes into a journal after it was taken over is found while the others run.
func TestTakeOver_FindsWhatComesLate(t *testing.T) {
	st := storetest.NewMem()
	db := open(t, st, nil, shared(20*time.Millisecond))
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var req request.Write
	add(&req, raw("__name__", "late"), sample(now, 4))
	entry := journal.Entry{Encoding: request.EncodingFlat, Body: req.AppendFlat(nil, nil), Arrived: now, Latest: math.MaxInt64,
		MaxLabels:    9,
		MaxLabelName: 100, MaxLabelValue: 100}
	var b store.Batch
	b.Put("promtsd-journal", []byte("\x012345678\x00\x00\x00\x00\x00\x00\x00\x09"), catalog.FamilySystem, nil, now,
		journal.AppendEntry(nil, &entry))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); cellsOf(t, st, "promtsd-journal") > 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("it is not replayed")
		}
	}
	for _, points := range db.all(t) {
		if points[now] != 4 {
			t.Errorf("got %v", points)
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
