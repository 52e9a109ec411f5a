package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

const journalTable = "promtsd-journal"

func newStore(t testing.TB) store.Store {
	t.Helper()
	st := storetest.NewMem()
	if _, _, err := catalog.Init(t.Context(), st, "promtsd", nil); err != nil {
		t.Fatal(err)
	}
	return st
}

func config(st store.Store, term time.Duration) journal.Config {
	return journal.Config{
		Store: st, Tables: catalog.DefaultTables(), LeaseTTL: term, Logger: slog.New(slog.DiscardHandler), First: 1,
	}
}

func openWriter(t testing.TB, c journal.Config) *journal.Writer {
	t.Helper()
	w, err := journal.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t testing.TB, w *journal.Writer, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if err := w.Write(t.Context(), &journal.Entry{Body: []byte(body)}, func(uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
}

func leases(t testing.TB, st store.Store) []journal.Lease {
	t.Helper()
	ls, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func entries(t testing.TB, st store.Store) int {
	t.Helper()
	n := 0
	for _, err := range st.Scan(t.Context(), store.Scan{Table: journalTable}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// recorder notes the bodies that are replayed, in the order of their turns.
type recorder struct {
	mu       sync.Mutex
	bodies   []string
	finished bool
	err      error
	full     int // so many entries fill it; 0: none do
	stored   int // how many Finish has stored
}

func (r *recorder) Replay(ctx context.Context, e *journal.Entry, turn *journal.Turn) error {
	if err := turn.Wait(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, string(e.Body))
	return r.err
}

func (r *recorder) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full > 0 && len(r.bodies)-r.stored >= r.full
}

func (r *recorder) Finish(context.Context) error {
	r.finished, r.stored = true, len(r.bodies)
	return nil
}

func takeOver(t testing.TB, st store.Store, l journal.Lease, r journal.Replayer) (bool, error) {
	t.Helper()
	return takeOverAs(t, st, l, 7, r)
}

func takeOverAs(t testing.TB, st store.Store, l journal.Lease, holder journal.ID, r journal.Replayer) (bool, error) {
	t.Helper()
	_, ok, err := journal.TakeOver(t.Context(), config(st, time.Minute), l, holder, r, func(journal.Replayed) {})
	return ok, err
}

func TestEntry_ComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.IntRange(0, 1<<40)
		e := journal.Entry{
			Encoding: rapid.Byte().Draw(t, "form"), Arrived: rapid.Int64().Draw(t, "arrived"),
			Latest:           rapid.Int64().Draw(t, "latest"),
			RefuseInfinities: rapid.Bool().Draw(t, "infinities"), NeedMetricName: rapid.Bool().Draw(t, "name"),
			MaxLabels: number.Draw(t, "labels"), MaxLabelName: number.Draw(t, "label name"),
			MaxLabelValue: number.Draw(t, "label value"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		b := journal.AppendEntry([]byte("before"), &e)[len("before"):]
		got, err := journal.ParseEntry(b)
		if err != nil || !bytes.Equal(got.Body, e.Body) {
			t.Fatalf("got %+v, %v, want %+v", got, err, e)
		}
		got.Body, e.Body = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(e) {
			t.Fatalf("got %+v, want %+v", got, e)
		}
		// Cut anywhere, or with a bit turned, it is refused.
		if _, err := journal.ParseEntry(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]); !errors.Is(err, mapping.ErrCorrupt) {
			t.Fatalf("a cut entry: got %v, want ErrCorrupt", err)
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := journal.ParseEntry(b); !errors.Is(err, mapping.ErrCorrupt) {
			t.Fatalf("a garbled entry: got %v, want ErrCorrupt", err)
		}
	})
}

func FuzzParseEntry(f *testing.F) {
	f.Add([]byte{})
	f.Add(journal.AppendEntry(nil, &journal.Entry{Encoding: 1, Body: []byte("body")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := journal.ParseEntry(b); err == nil && len(e.Body) > len(b) {
			t.Fatal("a body larger than its entry")
		}
	})
}

func TestTakeOver_ReplaysWhatTheCheckpointLeavesInOrder(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Millisecond*40))
	write(t, w, "a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	moved := make(chan struct{})
	done := make(chan error)
	go func() { // until the checkpoint is recorded
		done <- w.Run(ctx, func() uint64 {
			if entries(t, st) == 1 {
				once.Do(func() { close(moved) })
			}
			return 3
		})
	}()
	<-moved
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l := leases(t, st)
	if len(l) != 1 || l[0].Checkpoint != 3 || l[0].Writer != w.ID() || l[0].Holder != w.ID() {
		t.Fatalf("leases are %+v, want one of %v with checkpoint 3", l, w.ID())
	}
	r := &recorder{}
	if ok, err := takeOver(t, st, l[0], r); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if !slices.Equal(r.bodies, []string{"c"}) || !r.finished {
		t.Errorf("replayed %q (finished: %v), want c", r.bodies, r.finished)
	}
	if n := entries(t, st); n != 0 || len(leases(t, st)) != 0 {
		t.Errorf("%d entries and leases %v are left", n, leases(t, st))
	}
	if err := w.Run(t.Context(), func() uint64 { return 4 }); !errors.Is(err, journal.ErrLost) {
		t.Errorf("keeping a journal that was taken over: got %v, want ErrLost", err)
	}
	if err := w.Write(t.Context(), &journal.Entry{}, func(uint64) {}); !errors.Is(err, journal.ErrLost) {
		t.Errorf("writing to a journal that was taken over: got %v, want ErrLost", err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Errorf("close after the journal was taken over: %v", err)
	}
}

func TestTakeOver_OneOfManyGetsIt(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	write(t, w, "a")
	l := leases(t, st)[0]
	var wg sync.WaitGroup
	got := make([]bool, 8)
	records := make([]recorder, 8)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = takeOverAs(t, st, l, journal.ID(100+i), &records[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	winners := 0
	for i, ok := range got {
		if ok {
			winners++
		}
		if ok != (len(records[i].bodies) == 1) {
			t.Errorf("holder %d: ok %v, replayed %q", i, ok, records[i].bodies)
		}
	}
	if winners != 1 {
		t.Errorf("%d got the journal, want 1", winners)
	}
}

func TestTakeOver_FailureLeavesTheJournal(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	write(t, w, "a", "b")
	failed := errors.New("no memory")
	if ok, err := takeOver(t, st, leases(t, st)[0], &recorder{err: failed}); ok || !errors.Is(err, failed) {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	r := &recorder{}
	if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil || len(r.bodies) != 2 {
		t.Fatalf("the next takes over: %v, %v, replayed %q", ok, err, r.bodies)
	}
}

func TestClose_LeavesNothing(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	write(t, w, "a", "b")
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, l := entries(t, st), leases(t, st); n != 0 || len(l) != 0 {
		t.Errorf("%d entries and leases %v are left", n, l)
	}
}

// The store stamps leases by a clock of its own, which may be ahead of this machine's.
func TestLease_IsRemovedWhateverTheClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 20 * time.Millisecond, time.Hour} {
		st := storetest.NewMem()
		st.Clock = func() time.Time { return time.Now().Add(ahead) }
		if _, _, err := catalog.Init(t.Context(), st, "promtsd", nil); err != nil {
			t.Fatal(err)
		}
		closed, dead := openWriter(t, config(st, time.Minute)), openWriter(t, config(st, time.Minute))
		if err := closed.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := leases(t, st); len(l) != 1 || l[0].Writer != dead.ID() {
			t.Errorf("clock of the store %v ahead: after a stop there are the leases %+v", ahead, l)
			continue
		}
		write(t, dead, "a")
		if ok, err := takeOver(t, st, leases(t, st)[0], &recorder{}); !ok || err != nil {
			t.Fatalf("take over: %v, %v", ok, err)
		}
		if l := leases(t, st); len(l) != 0 {
			t.Errorf("clock of the store %v ahead: after a takeover there are the leases %+v", ahead, l)
		}
	}
}

func TestClose_RenewsOverARenewalThatWasNotHeardOf(t *testing.T) {
	st := storetest.Faulty(newStore(t),
		storetest.Fault{Verb: storetest.CheckAndPut, Call: 2, When: storetest.After},
		storetest.Fault{Verb: storetest.Get, Call: 1})
	w := openWriter(t, config(st, time.Minute))
	if err := w.Close(t.Context()); err == nil || errors.Is(err, journal.ErrLost) {
		t.Fatalf("a renewal with an error: got %v", err)
	}
	write(t, w, "a") // the lease shall say something else
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, l := entries(t, st), leases(t, st); n != 0 || len(l) != 0 {
		t.Errorf("%d entries and leases %v are left", n, l)
	}
}

func TestCheck_FailsWhenTheLeaseWasNotRenewedInTime(t *testing.T) {
	w := openWriter(t, config(newStore(t), time.Nanosecond))
	if err := w.Check(); !errors.Is(err, journal.ErrLost) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func idBytes(id journal.ID) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(id >> (56 - 8*i))
	}
	return b
}

func TestWatch_TellsWhoHasNotChangedForATerm(t *testing.T) {
	var w journal.Watch
	begin := time.Now()
	at := func(seconds float64, ls ...journal.Lease) []journal.Lease {
		return w.Expired(ls, begin.Add(time.Duration(seconds*float64(time.Second))), 10*time.Second)
	}
	alive, dead := journal.Lease{Writer: 1, Revision: 1}, journal.Lease{Writer: 2, Revision: 1}
	if got := at(0, alive, dead); len(got) > 0 {
		t.Errorf("at first sight: %v", got)
	}
	alive.Revision++
	if got := at(10, alive, dead); len(got) > 0 {
		t.Errorf("after a term, which ends a little later for others: %v", got)
	}
	if got := at(12.5, alive, dead); len(got) != 1 || got[0].Writer != 2 {
		t.Errorf("after a term and a fifth: got %v, want writer 2", got)
	}
}

func TestWatch_MeasuresALeaseByItsOwnTTL(t *testing.T) {
	st := newStore(t)
	openWriter(t, config(st, 20*time.Second))
	openWriter(t, config(st, 5*time.Second))
	long, short := leases(t, st)[0], leases(t, st)[1]
	if long.TTL < short.TTL {
		long, short = short, long
	}
	older := journal.Lease{Writer: 1, Revision: 1} // which does not say
	var w journal.Watch
	begin := time.Now()
	for _, c := range []struct {
		after time.Duration
		want  []journal.ID
	}{
		{0, nil}, {1100 * time.Millisecond, nil}, {1300 * time.Millisecond, []journal.ID{older.Writer}},
		{5900 * time.Millisecond, []journal.ID{older.Writer}},
		{6100 * time.Millisecond, []journal.ID{older.Writer, short.Writer}},
		{23 * time.Second, []journal.ID{older.Writer, short.Writer}},
		{25 * time.Second, []journal.ID{older.Writer, short.Writer, long.Writer}},
	} {
		var got []journal.ID
		for _, l := range w.Expired([]journal.Lease{older, short, long}, begin.Add(c.after), time.Second) {
			got = append(got, l.Writer)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("after %v: got %v, want %v", c.after, got, c.want)
		}
	}
}

func TestLeases_OneThatCannotBeReadIsAnError(t *testing.T) {
	st := newStore(t)
	openWriter(t, config(st, time.Minute))
	var b store.Batch
	b.Put("promtsd", []byte("w12345678"), catalog.FamilySystem, []byte("lease"), 1, []byte("{"))
	b.Put("promtsd", []byte("w\x00\x00\x00\x00\x00\x00\x00\x00"), catalog.FamilySystem, []byte("lease"), 1, []byte("{"))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if all, err := journal.Leases(t.Context(), st, catalog.DefaultTables()); !errors.Is(err, mapping.ErrCorrupt) ||
		len(all) != 1 {
		t.Errorf("got %v with %d leases, want ErrCorrupt with the one that can be read", err, len(all))
	}
}

func TestTakeOver_ReplaysEntriesOfManyPiecesAndDeletesThem(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	bodies := []string{"a", strings.Repeat(large, 9), "b", strings.Repeat(large, 4)}
	st := newStore(t)
	write(t, openWriter(t, config(st, time.Minute)), bodies...)
	for row, err := range st.Scan(t.Context(), store.Scan{Table: journalTable}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, cell := range row.Cells {
			if len(cell.Value) > 4<<20 {
				t.Errorf("a cell has %d bytes, more than 4 MiB", len(cell.Value))
			}
		}
	}
	r := &recorder{}
	if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil || !slices.Equal(r.bodies, bodies) {
		t.Fatalf("take over: %v, %v, replayed %d bodies", ok, err, len(r.bodies))
	}
	if n := entries(t, st); n != 0 {
		t.Errorf("%d entries are left, with some of their pieces", n)
	}

	w := openWriter(t, config(st, time.Minute))
	write(t, w, bodies...)
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := entries(t, st); n != 0 {
		t.Errorf("%d entries are left after a close, with some of their pieces", n)
	}
}

// Of an entry in pieces any but the first that is not there is damage; without the first it was never acknowledged.
func TestTakeOver_TellsAMissingPieceFromAnEntryThatWasNotFinished(t *testing.T) {
	for missing, quarantined := range []int{0, 1, 1} {
		st := newStore(t)
		w := openWriter(t, config(st, time.Minute))
		write(t, w, strings.Repeat("x", 9<<20), "b")
		var b store.Batch
		var qualifier []byte
		if missing > 0 {
			qualifier = []byte{0, byte(missing)}
		}
		b.Delete(journalTable, append(idBytes(w.ID()), 0, 0, 0, 0, 0, 0, 0, 1), catalog.FamilySystem, qualifier, 1<<60)
		if err := st.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil || !slices.Equal(r.bodies, []string{"b"}) {
			t.Fatalf("without piece %d: %v, %v, replayed %d bodies, want b", missing, ok, err, len(r.bodies))
		}
		found, err := journal.InQuarantine(t.Context(), st, catalog.DefaultTables())
		if err != nil || len(found) != quarantined || entries(t, st) != 0 {
			t.Errorf("without piece %d: in quarantine is %v, %v, and %d entries are left, want %d and 0", missing, found, err,
				entries(t, st), quarantined)
		}
	}
}

// Entries are stamped by the clock of the promtsd that wrote them, and deleted by that of another.
func TestTakeOver_DeletesEntriesThatAreAheadOfItsClock(t *testing.T) {
	st := newStore(t)
	ahead := time.Now().Add(time.Hour).UnixMilli()
	dead, closed := openWriter(t, config(st, time.Minute)), openWriter(t, config(st, time.Minute))
	for _, w := range []*journal.Writer{dead, closed} {
		if err := w.Write(t.Context(), &journal.Entry{Arrived: ahead}, func(uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ok, err := takeOver(t, st, leases(t, st)[0], &recorder{}); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	if n := entries(t, st); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A promtsd that ends between the two steps of a move leaves the entry in both places, and the next replay tidies up.
func TestTakeOver_MovesIntoQuarantineInStepsThatCanBeRepeated(t *testing.T) {
	for call := 1; ; call++ {
		mem := newStore(t)
		write(t, openWriter(t, config(mem, time.Minute)), "a", "b")
		bad := &journal.EntryError{Class: journal.Damaged, Err: errors.New("no")}
		faulty := storetest.Faulty(mem, storetest.Fault{Verb: storetest.Apply, Call: call, When: storetest.After})
		_, _, err := journal.TakeOver(t.Context(), config(faulty, time.Minute), leases(t, mem)[0], 7, &recorder{err: bad},
			func(journal.Replayed) {})
		failed := err != nil
		for _, l := range leases(t, mem) {
			if ok, err := takeOver(t, mem, l, &recorder{err: bad}); !ok || err != nil {
				t.Fatalf("call %d: the next takes over: %v, %v", call, ok, err)
			}
		}
		found, err := journal.InQuarantine(t.Context(), mem, catalog.DefaultTables())
		if err != nil || len(found) != 2 || entries(t, mem) != 0 {
			t.Fatalf("call %d: in quarantine is %v, %v, and %d entries are left, want 2 and 0", call, found, err,
				entries(t, mem))
		}
		if !failed {
			return
		}
	}
}

func TestMissing_SaysSoOfRangesThatBeginBeforeTheLatestSampleThereCanBe(t *testing.T) {
	st := newStore(t)
	c := config(st, time.Minute)
	w := openWriter(t, c)
	for _, arrived := range []int64{1000, 5000} {
		if err := w.Write(t.Context(), &journal.Entry{Arrived: arrived, Latest: arrived + 50}, func(uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
	r := &recorder{err: &journal.EntryError{Class: journal.BadUID, Err: errors.New("no")}}
	if ok, err := takeOver(t, st, leases(t, st)[0], r); !ok || err != nil {
		t.Fatalf("take over: %v, %v", ok, err)
	}
	registry := prometheus.NewRegistry()
	q := storetest.Must(journal.NewQuarantine(st, catalog.DefaultTables(), registry, c.Logger))
	for mint, want := range map[int64]string{0: "2 requests", 1050: "2 requests", 1051: "1 requests", 5050: "1 requests",
		5051: ""} {
		got := q.Missing(t.Context(), mint)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].Error(), want)) {
			t.Errorf("from %d on: %v, want one of %q", mint, got, want)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(
		`# HELP promtsd_journal_quarantined_entries Journal entries that could not be replayed, and wait to be tried again or dropped.
# TYPE promtsd_journal_quarantined_entries gauge
promtsd_journal_quarantined_entries 2
`)); err != nil {
		t.Error(err)
	}
	if ok, err := journal.Drop(t.Context(), st, catalog.DefaultTables(), w.ID(), 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := q.Missing(t.Context(), 0); len(got) != 1 || !strings.Contains(got[0].Error(), "1 requests") {
		t.Errorf("after one was dropped: %v", got)
	}
	away := storetest.Must(journal.NewQuarantine(storetest.Faulty(st, storetest.Fault{Verb: storetest.Scan}), catalog.DefaultTables(),
		nil, c.Logger))
	if got := away.Missing(t.Context(), 9999); len(got) != 1 || !errors.Is(got[0], store.ErrUnavailable) {
		t.Errorf("when the store is away: %v, want a warning", got)
	}
}

func TestBacklog_IsWhatIsNotDeleted(t *testing.T) {
	st := newStore(t)
	w := openWriter(t, config(st, time.Minute))
	for number := range 3 {
		e := journal.Entry{Arrived: int64(1000 + number), Body: []byte("body")}
		if err := w.Write(t.Context(), &e, func(uint64) {}); err != nil {
			t.Fatal(err)
		}
	}
	entry := len(journal.AppendEntry(nil, &journal.Entry{Arrived: 1000, Body: []byte("body")}))
	if n, bytes, oldest := w.Backlog(); n != 3 || bytes != 3*entry || oldest != 1000 {
		t.Errorf("got %d entries of %d bytes from %d on, want 3 of %d from 1000 on", n, bytes, oldest, 3*entry)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, bytes, oldest := w.Backlog(); n != 0 || bytes != 0 || oldest != 0 {
		t.Errorf("after Close: got %d entries of %d bytes from %d on, want none", n, bytes, oldest)
	}
}
