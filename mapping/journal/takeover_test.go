package journal_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// hooked is a store with something before some of its calls.
type hooked struct {
	store.Store
	gets  atomic.Int64
	get   func(call int64) // after a Get has read, before it is told
	check func() error     // instead of a check, if it is an error
}

func (h *hooked) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		rows, err := storetest.Collect(h.Store.Get(ctx, g))
		if call := h.gets.Add(1); h.get != nil {
			h.get(call)
		}
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Row{}, err)
		}
	}
}

func (h *hooked) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	if h.check != nil {
		if err := h.check(); err != nil {
			return nil, err
		}
	}
	return h.Store.CheckAndPut(ctx, checks)
}

// scripted is a Replayer that does something at some entries, and when it stores.
type scripted struct {
	recorder
	at     func(body string)
	finish func()
}

func (s *scripted) Replay(ctx context.Context, e *journal.Entry, turn *journal.Turn) error {
	if err := turn.Wait(ctx); err != nil {
		return err
	}
	if s.at != nil {
		s.at(string(e.Body))
	}
	return s.recorder.Replay(ctx, e, turn)
}

func (s *scripted) Finish(ctx context.Context) error {
	if s.finish != nil {
		s.finish()
	}
	return s.recorder.Finish(ctx)
}

// putEntry puts an entry as a writer's put does that was long on its way.
func putEntry(t testing.TB, st store.Store, writer journal.ID, number byte, body string, at int64) {
	t.Helper()
	var b store.Batch
	row := append(idBytes(writer), 0, 0, 0, 0, 0, 0, 0, number)
	b.Put(journalTable, row, catalog.FamilySystem, nil, at, journal.AppendEntry(nil, &journal.Entry{Body: []byte(body)}))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// orphans replays entries without a lease, and returns their bodies.
func orphans(t testing.TB, st store.Store) (bodies []string) {
	t.Helper()
	var all []*recorder
	done, err := journal.ReplayOrphans(t.Context(), config(st, time.Minute), func() journal.Replayer {
		all = append(all, new(recorder))
		return all[len(all)-1]
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if len(r.bodies) != 1 || !r.finished {
			t.Errorf("one replayer got %q, stored: %v; want one entry, stored", r.bodies, r.finished)
		}
		bodies = append(bodies, r.bodies...)
	}
	if done.Entries != len(bodies) {
		t.Errorf("it says that there were %d entries, and there were %d", done.Entries, len(bodies))
	}
	return bodies
}

// A writer that is thought to be dead, by whatever clock or flag, learns of it before it acknowledges anything more.
func TestConfirm_TellsOfATakeover(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Hour))
	if err := errors.Join(w.Check(), w.Confirm(t.Context())); err != nil {
		t.Fatal(err)
	}
	write(t, w, "a")
	r := &scripted{at: func(string) {
		if err := w.Confirm(t.Context()); !errors.Is(err, journal.ErrLost) {
			t.Errorf("while its journal is taken over: got %v, want ErrLost", err)
		}
	}}
	kept := make(chan error)
	go func() { kept <- w.Run(t.Context(), func() uint64 { return 1 }) }()
	if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if err := <-kept; !errors.Is(err, journal.ErrLost) { // long before the next renewal
		t.Errorf("keep: got %v, want ErrLost", err)
	}
	for name, err := range map[string]error{
		"Check": w.Check(), "Confirm": w.Confirm(t.Context()), "Ready": w.Ready(),
		"Write": w.Write(t.Context(), &journal.Entry{}, func(uint64) {}),
	} {
		if !errors.Is(err, journal.ErrLost) || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s afterwards: got %v, want ErrLost", name, err)
		}
	}
}

func TestConfirm_SharesLooksButNoneThatBeganBefore(t *testing.T) {
	st := &hooked{Store: newStore(t)}
	w := openWriter(t, config(st, time.Hour))
	before := st.gets.Load()
	reached, release := make(chan struct{}), make(chan struct{})
	st.get = func(call int64) {
		if call == before+1 {
			close(reached)
			<-release
		}
	}
	first := make(chan error)
	go func() { first <- w.Confirm(t.Context()) }()
	<-reached // it has read that all is well
	if ok, err := takeOver(t, st.Store, leases(t, st.Store)[0], &recorder{}); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Confirm(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("with a context that has ended: got %v", err)
	}
	var wg sync.WaitGroup
	var asked sync.WaitGroup
	asked.Add(100)
	for range 100 {
		wg.Go(func() {
			asked.Done()
			if err := w.Confirm(t.Context()); !errors.Is(err, journal.ErrLost) {
				t.Errorf("asked after the takeover: got %v, want ErrLost", err)
			}
		})
	}
	asked.Wait()
	close(release)
	if err := <-first; err != nil {
		t.Errorf("asked before the takeover: got %v", err)
	}
	wg.Wait()
	if looks := st.gets.Load() - before; looks > 50 {
		t.Errorf("102 questions took %d looks", looks)
	}
}

// Where no other process can have the store open, nobody looks.
func TestConfirm_AloneDoesNotAskTheStore(t *testing.T) {
	st := &hooked{Store: newStore(t)}
	c := config(st, time.Nanosecond)
	c.SingleProcess = true
	w := openWriter(t, c)
	before := st.gets.Load()
	if err := errors.Join(w.Check(), w.Confirm(t.Context())); err != nil || st.gets.Load() != before {
		t.Errorf("got %v after %d looks, want none", err, st.gets.Load()-before)
	}
	if err := w.Ready(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Ready without a renewal in time: got %v", err)
	}
}

// A renewal whose answer is lost may have taken effect, and several of them, too.
func TestRenew_GoesOnAfterRenewalsThatWereNotHeardOf(t *testing.T) {
	inner := newStore(t)
	w := openWriter(t, config(storetest.Faulty(inner,
		storetest.Fault{Verb: storetest.CheckAndPut, Call: 2, When: storetest.After},
		storetest.Fault{Verb: storetest.Get, Call: 1},
		storetest.Fault{Verb: storetest.CheckAndPut, Call: 4, When: storetest.After},
		storetest.Fault{Verb: storetest.Get, Call: 3},
	), time.Minute))
	for range 2 {
		if err := w.Close(t.Context()); err == nil || errors.Is(err, journal.ErrLost) {
			t.Fatalf("a renewal with an error: got %v", err)
		}
		write(t, w, "a")
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, l := entries(t, inner), leases(t, inner); n != 0 || len(l) != 0 {
		t.Errorf("%d entries and leases %v are left", n, l)
	}
}

func TestTakeOver_DeletesExactlyWhatItHasStored(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	write(t, w, "a", "b") // 1 and 2
	putEntry(t, st, w.ID(), 5, "e", 1)
	l := leases(t, st)[0]
	r := &scripted{finish: func() { // which was on its way for long
		putEntry(t, st, w.ID(), 3, "c", 1)
		putEntry(t, st, w.ID(), 9, "i", 1)
	}}
	if ok, err := takeOver(t, st, l, r); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if want := []string{"a", "b", "e"}; !slices.Equal(r.bodies, want) {
		t.Errorf("replayed %q, want %q", r.bodies, want)
	}
	if n := entries(t, st); n != 2 {
		t.Errorf("%d entries are left, want the 2 that came late", n)
	}
	openWriter(t, config(st, time.Minute))
	if got, want := orphans(t, st), []string{"c", "i"}; !slices.Equal(got, want) {
		t.Errorf("replayed without a lease %q, want %q", got, want)
	}
	if n := entries(t, st); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// Entries are stamped by their writer's clock, which may be ahead of that of the one who deletes them.
func TestEntries_AreDeletedWhateverTheClocks(t *testing.T) {
	st := newStore(t)
	future := time.Now().Add(time.Hour).UnixMilli()
	for name, remove := range map[string]func(w *journal.Writer) error{
		"stop": func(w *journal.Writer) error { return w.Close(t.Context()) },
		"takeover": func(*journal.Writer) error {
			_, err := takeOver(t, st, leases(t, st)[0], &recorder{})
			return err
		},
		"drop": func(w *journal.Writer) error {
			_, err := journal.Drop(t.Context(), st, catalog.DefaultTables(), w.ID(), 1)
			return errors.Join(err, w.Close(t.Context()))
		},
	} {
		w := openWriter(t, config(st, time.Minute))
		if err := w.Write(t.Context(), &journal.Entry{Arrived: future}, func(uint64) {}); err != nil {
			t.Fatal(err)
		}
		if err := remove(w); err != nil {
			t.Fatal(err)
		}
		if n := entries(t, st); n != 0 {
			t.Errorf("%s: %d entries are left", name, n)
		}
	}
}

// A takeover that was taken over itself has read a part of the entries, perhaps, and others were deleted meanwhile: it
// stores and deletes nothing more.
func TestTakeOver_EndsWhenItIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		late     bool // it is taken over after it has begun to store
		finished bool
	}{"before it stores": {false, false}, "while it stores": {true, true}} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			w := openWriter(t, config(st, time.Minute))
			write(t, w, "a", "b")
			other := &recorder{}
			steal := func() {
				if ok, err := takeOverAs(t, st, leases(t, st)[0], 8, other); !ok || err != nil {
					t.Errorf("the second holder: %v, %v", ok, err)
				}
			}
			r := &scripted{}
			if c.late {
				r.finish = steal
			} else {
				r.at = func(body string) {
					if body == "b" {
						steal()
					}
				}
			}
			if ok, err := takeOver(t, st, leases(t, st)[0], r); ok || !errors.Is(err, journal.ErrLost) {
				t.Errorf("take over: %v, %v, want ErrLost", ok, err)
			}
			if r.finished != c.finished || len(other.bodies) != 2 {
				t.Errorf("the first stored: %v, want %v; the second got %q, want all", r.finished, c.finished, other.bodies)
			}
		})
	}
}

// What is stored of a journal is recorded and deleted while the rest is read: the next one who tries goes on from
// there.
func TestTakeOver_GoesOnWhereAnotherEnded(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprint("entry ", i))
	}
	write(t, w, all...)
	failed := errors.New("no memory")
	r := &scripted{recorder: recorder{full: 2}}
	r.at = func(body string) {
		if body == all[len(all)-1] {
			r.err = failed
		}
	}
	if ok, err := takeOver(t, st, leases(t, st)[0], r); ok || !errors.Is(err, failed) {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if n, l := entries(t, st), leases(t, st)[0]; r.stored < 2 || n != len(all)-r.stored ||
		l.Checkpoint != uint64(r.stored+1) {
		t.Errorf("%d entries are left of %d, and the checkpoint is %d, after %d were stored",
			n, len(all), l.Checkpoint, r.stored)
	}
	next := &recorder{}
	if ok, err := takeOverAs(t, st, leases(t, st)[0], 8, next); !ok || err != nil ||
		!slices.Equal(next.bodies, all[r.stored:]) {
		t.Errorf("the next holder: %v, %v, replayed %q", ok, err, next.bodies)
	}
}

// A writer that dies after it has recorded the checkpoint leaves entries whose samples are stored.
func TestTakeOver_DeletesWhatTheWriterDidNot(t *testing.T) {
	inner := newStore(t)
	st := storetest.Faulty(inner, storetest.Fault{Verb: storetest.Apply, Call: 4})
	w := openWriter(t, config(st, 40*time.Millisecond))
	write(t, w, "a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := w.Run(ctx, func() uint64 {
		if st.Calls(storetest.Apply) == 4 {
			cancel() // the entries that were to be deleted are not; it dies after the next renewal
		}
		return 3
	})
	if err != nil {
		t.Fatal(err)
	}
	if l := leases(t, inner)[0]; l.Checkpoint != 3 || l.Truncated > 1 {
		t.Fatalf("the lease is %+v, want the checkpoint 3 and none deleted", l)
	}
	r := &recorder{}
	if ok, err := takeOver(t, inner, leases(t, inner)[0], r); !ok || err != nil || !slices.Equal(r.bodies, []string{"c"}) {
		t.Errorf("take over: %v, %v, replayed %q, want c", ok, err, r.bodies)
	}
	if n := entries(t, inner); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// Where no other process can have the store open, a lease that cannot be written for a while, on a disk that hangs, is
// not lost.
func TestTakeOver_AloneWaitsForALeaseThatCannotBeWritten(t *testing.T) {
	for _, alone := range []bool{true, false} {
		inner := newStore(t)
		w := openWriter(t, config(inner, time.Minute))
		write(t, w, "a")
		l := leases(t, inner)[0]
		var failures atomic.Int64
		var ill atomic.Bool
		st := &hooked{Store: inner, check: func() error {
			if !ill.Load() {
				return nil
			}
			failures.Add(1)
			return fmt.Errorf("%w: it hangs", store.ErrUnavailable)
		}}
		c := config(st, 20*time.Millisecond)
		c.SingleProcess = alone
		r := &scripted{at: func(string) {
			ill.Store(true)
			for begin := time.Now(); failures.Load() < 5 && time.Since(begin) < time.Minute; {
				time.Sleep(time.Millisecond)
				if !alone && time.Since(begin) > time.Second {
					break // it has given up
				}
			}
			ill.Store(false)
		}}
		_, ok, err := journal.TakeOver(t.Context(), c, l, 7, r, func(journal.Replayed) {})
		if ok != alone || alone == errors.Is(err, journal.ErrLost) {
			t.Errorf("alone %v: take over: %v, %v", alone, ok, err)
		}
	}
}

func TestReplayOrphans_LeavesEntriesWithALeaseAlone(t *testing.T) {
	st := newStore(t)
	if got := orphans(t, st); len(got) > 0 {
		t.Errorf("without a journal: %q", got)
	}
	var want []string
	for i := range 20 {
		w := openWriter(t, config(st, time.Minute))
		write(t, w, fmt.Sprint("a", i), fmt.Sprint("b", i))
		if i%3 == 0 {
			continue
		}
		var b store.Batch // somebody removes it
		b.Delete("promtsd", fmt.Appendf(nil, "w%s", idBytes(w.ID())), catalog.FamilySystem, []byte("lease"), math.MaxInt64-1)
		if err := st.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint("a", i), fmt.Sprint("b", i))
	}
	var others store.Batch // which are no entries
	for _, key := range []string{"\x01", "\x7f\x01\x02\x03\x04\x05\x06\x07\x08", "\xff"} {
		others.Put(journalTable, []byte(key), catalog.FamilySystem, nil, 1, nil)
	}
	if err := st.Apply(t.Context(), &others); err != nil {
		t.Fatal(err)
	}
	for _, id := range []journal.ID{0, 1, math.MaxUint64} {
		putEntry(t, st, id, 1, id.String(), 1)
		want = append(want, id.String())
	}
	got := orphans(t, st)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("replayed %q, want %q", got, want)
	}
	if n := entries(t, st); n != 14+3 {
		t.Errorf("%d rows are left, want the 14 entries of writers with a lease, and 3 of others", n)
	}
	if got := orphans(t, st); len(got) > 0 {
		t.Errorf("once more: %q", got)
	}
}

func TestReplayOrphans_FailureLeavesTheEntry(t *testing.T) {
	st := newStore(t)
	putEntry(t, st, 5, 1, "a", 1)
	failed := errors.New("no memory")
	_, err := journal.ReplayOrphans(t.Context(), config(st, time.Minute),
		func() journal.Replayer { return &recorder{err: failed} })
	if !errors.Is(err, failed) || entries(t, st) != 1 {
		t.Errorf("got %v, and %d entries are left, want 1", err, entries(t, st))
	}
}
