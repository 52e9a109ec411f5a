package recovery_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest/recovery"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// replayer notes the bodies of entries.
type replayer struct {
	mu     sync.Mutex
	bodies []string
	ends   int
	err    error // of Finish
}

func (r *replayer) Replay(ctx context.Context, e *journal.Entry, turn *journal.Turn) error {
	if err := turn.Wait(ctx); err != nil {
		return err
	}
	defer turn.Pass()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, string(e.Body))
	return nil
}

func (r *replayer) Full() bool                   { return false }
func (r *replayer) Finish(context.Context) error { return r.err }

func newStore(t *testing.T) store.Store {
	st := storetest.NewMem()
	if _, _, err := catalog.Init(t.Context(), st, "promtsd", nil); err != nil {
		t.Fatal(err)
	}
	return st
}

func config(st store.Store, r *replayer, single bool) recovery.Config {
	return recovery.Config{
		Journal: journal.Config{
			Store: st, Tables: catalog.DefaultTables(), LeaseTTL: time.Minute, SingleProcess: single,
			Logger: slog.New(slog.DiscardHandler),
		},
		Write:             true,
		OldestEntry:       func() uint64 { return math.MaxUint64 },
		Lost:              func() {},
		NewReplayer:       func(*atomic.Int64) (journal.Replayer, func()) { return r, func() { r.ends++ } },
		NewSingleReplayer: func(*atomic.Int64) journal.Replayer { return r },
	}
}

// write writes entries with these bodies to the journal of a Recovery, and does as if their samples stayed in memory.
func write(t *testing.T, r *recovery.Recovery, bodies ...string) {
	t.Helper()
	w, err := r.Journal()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		if err := w.Write(t.Context(), &journal.Entry{Body: []byte(body)}, func(uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
}

func leases(t *testing.T, st store.Store) int {
	t.Helper()
	all, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// What a process leaves behind is replayed at the next start, in its order, and before Start returns; of what was
// closed nothing is left.
func TestStart_ReplaysWhatADeadProcessLeft(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *recovery.Recovery){
		"killed": func(_ *testing.T, r *recovery.Recovery) { r.Abandon() },
		"closed, not stored": func(t *testing.T, r *recovery.Recovery) {
			r.StopWatching()
			if err := r.Close(t.Context(), errors.New("the store is away")); err == nil ||
				!strings.Contains(err.Error(), "the store is away") {
				t.Errorf("got %v, want the error of the flush", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			first := recovery.New(config(st, new(replayer), true))
			if err := first.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []string{"a", "b", "c"}
			write(t, first, want...)
			leave(t, first)
			if _, err := first.Journal(); !errors.Is(err, recovery.ErrNoJournal) || !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("afterwards the journal is %v", err)
			}

			r := new(replayer)
			next := recovery.New(config(st, r, true))
			if err := next.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.bodies, want) || r.ends != 1 {
				t.Errorf("replayed %q, ended %d times, want %q, once", r.bodies, r.ends, want)
			}
			if next.Replaying() != "" || next.EntriesLeft() != 0 {
				t.Errorf("after the start it is %q, %d entries left", next.Replaying(), next.EntriesLeft())
			}
			next.StopWatching()
			if err := next.Close(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if n := leases(t, st); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	}
}

// A journal that cannot be replayed now stops the start, and is there for the next.
func TestStart_LeavesAJournalThatItCannotReplay(t *testing.T) {
	st := newStore(t)
	first := recovery.New(config(st, new(replayer), true))
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, first, "a")
	first.Abandon()

	full := errors.New("the disk is full")
	if err := recovery.New(config(st, &replayer{err: full}, true)).Start(t.Context()); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	r := new(replayer)
	next := recovery.New(config(st, r, true))
	if err := next.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer next.Abandon()
	if !slices.Equal(r.bodies, []string{"a"}) {
		t.Errorf("replayed %q", r.bodies)
	}
}

// Another process takes the journal of one that lives: that one is told, and goes on with a new journal.
func TestKeep_BeginsANewJournalWhenItsLeaseIsLost(t *testing.T) {
	st := newStore(t)
	lost := make(chan struct{}, 1)
	c := config(st, new(replayer), false)
	c.Journal.LeaseTTL = 100 * time.Millisecond
	c.Lost = func() { lost <- struct{}{} }
	living := recovery.New(c)
	if err := living.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer living.Abandon()
	write(t, living, "a")
	before, err := living.Journal()
	if err != nil {
		t.Fatal(err)
	}

	all, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
	if err != nil || len(all) != 1 {
		t.Fatalf("got %v, %v, want one lease", all, err)
	}
	r := new(replayer)
	other := recovery.New(config(st, r, false))
	if err := other.TakeOver(t.Context(), all[0], 7); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.bodies, []string{"a"}) {
		t.Errorf("replayed %q", r.bodies)
	}
	<-lost
	for {
		if now, err := living.Journal(); err == nil {
			if now.ID() == before.ID() || now.Next() <= before.Next()-1 {
				t.Errorf("the new journal is %s from %d, the old one was %s up to %d", now.ID(), now.Next(), before.ID(),
					before.Next())
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}
