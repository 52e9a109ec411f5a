package families_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// fixture is a store with promtsd's tables.
func fixture(t *testing.T) (store.Store, catalog.Tables) {
	st := storetest.NewMem()
	s, _, err := catalog.Init(t.Context(), st, "promtsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	return st, s.Tables
}

func said(family, typ, help, unit string) request.Metadata {
	return request.Metadata{Family: []byte(family), Type: typ, Help: []byte(help), Unit: []byte(unit)}
}

// write writes metadata as a request does, and says how many cells that took.
func write(t *testing.T, st store.Store, w *families.Writer, now int64, all ...request.Metadata) int {
	t.Helper()
	if err := w.Load(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	var changes []families.Change
	for _, m := range all {
		change, changed, err := w.Put(&b, m, "sender", now)
		if err != nil {
			t.Fatal(err)
		}
		if changed {
			changes = append(changes, change)
		}
	}
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	w.Keep(changes)
	return len(changes)
}

func list(t *testing.T, r families.Reader, name string, limit int) (got []string) {
	t.Helper()
	err := r.Metadata(t.Context(), name, limit, func(name string, m metadata.Metadata) error {
		got = append(got, fmt.Sprintf("%s: %s %q %q", name, m.Type, m.Help, m.Unit))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWriter_WritesWhatIsNewAndTheLastCounts(t *testing.T) {
	st, tables := fixture(t)
	w, other := families.NewWriter(st, tables), families.NewWriter(st, tables)
	a, b := said("a", "counter", "A <help>\n\"ü\".", ""), said("b", "gauge", "B", "seconds")
	now := int64(1_795_253_864_620)
	for step, c := range []struct {
		w     *families.Writer
		after int64
		said  []request.Metadata
		want  int
	}{
		{w, 0, []request.Metadata{a, b}, 2},
		{w, 60_000, []request.Metadata{a, b, a, b}, 0},
		{w, 60_000, []request.Metadata{a, said("b", "gauge", "B", "")}, 1},
		{w, 60_000, []request.Metadata{a, b}, 1},
		{other, 60_000, []request.Metadata{said("a", "gauge", "of another", "")}, 1},
		{w, 60_000, []request.Metadata{a}, 0},
		// What another wrote, and nobody says any more, does not stay for ever.
		{w, 2 * 3600_000, []request.Metadata{a}, 1},
	} {
		now += c.after
		if got := write(t, st, c.w, now, c.said...); got != c.want {
			t.Errorf("step %d: %d were written, want %d", step, got, c.want)
		}
		if step == 5 {
			want := []string{`a: gauge "of another" ""`, `b: gauge "B" "seconds"`}
			if got := list(t, families.Reader{Store: st, Tables: tables}, "", 0); !slices.Equal(got, want) {
				t.Errorf("after another wrote: got %q, want %q", got, want)
			}
		}
	}
	r := families.Reader{Store: st, Tables: tables}
	wantA, wantB := `a: counter "A <help>\n\"ü\"." ""`, `b: gauge "B" "seconds"`
	for _, c := range []struct {
		name  string
		limit int
		want  []string
	}{
		{"", 0, []string{wantA, wantB}}, {"", 1, []string{wantA}}, {"b", 1, []string{wantB}}, {"c", 0, nil}, {"\xff", 0, nil},
		{strings.Repeat("x", 1<<20), 0, nil},
	} {
		if got := list(t, r, c.name, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%q, limit %d: got %q, want %q", c.name, c.limit, got, c.want)
		}
	}
}

// What did not become durable is not known, and is written again.
func TestWriter_KnowsOnlyWhatIsKept(t *testing.T) {
	st, tables := fixture(t)
	w := families.NewWriter(st, tables)
	var b store.Batch
	for range 2 {
		if _, changed, err := w.Put(&b, said("a", "counter", "", ""), "", 1); err != nil || !changed {
			t.Errorf("changed %v, %v, want it to be written", changed, err)
		}
	}
}

func TestWriter_RefusesWhatCannotBeKept(t *testing.T) {
	st, tables := fixture(t)
	w := families.NewWriter(st, tables)
	var b store.Batch
	for _, m := range []request.Metadata{
		said("", "counter", "help", ""), said("\xff", "counter", "", ""),
		said(strings.Repeat("x", 10_000), "counter", "", ""),
		said("a", "counter", strings.Repeat("x", 40_000), strings.Repeat("x", 40_000)),
	} {
		if _, changed, err := w.Put(&b, m, "", 1); changed || !errors.Is(err, mapping.ErrInvalid) || b.Len() > 0 {
			t.Errorf("%.20q: got %v, %v, %d cells, want ErrInvalid and none", m.Family, changed, err, b.Len())
		}
	}
	if _, _, err := w.Put(&b, said("a", "counter", "\xff", ""), "", 1); err != nil {
		t.Errorf("a help that is no UTF-8: %v", err)
	}
}

func TestReader_SaysWhatItCannotRead(t *testing.T) {
	st, tables := fixture(t)
	var b store.Batch
	b.Put(tables.System, []byte("ma"), catalog.FamilySystem, nil, 1, []byte("{"))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	r := families.Reader{Store: st, Tables: tables}
	stop := errors.New("enough")
	f := func(string, metadata.Metadata) error { return stop }
	if err := r.Metadata(context.Background(), "", 0, f); !errors.Is(err, mapping.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	write(t, st, families.NewWriter(st, tables), 2, said("a", "gauge", "", ""))
	if err := r.Metadata(context.Background(), "a", 0, f); !errors.Is(err, stop) {
		t.Errorf("got %v, want the callback's error", err)
	}
}

// A write whose outcome is not known leaves it open what the store has. What was there before is not known to be there
// still.
func TestWriter_WritesAgainWhatMayHaveBeenReplaced(t *testing.T) {
	st, tables := fixture(t)
	w := families.NewWriter(st, tables)
	now := int64(1_795_253_864_620)
	first, second := said("a", "gauge", "first", ""), said("a", "gauge", "second", "")
	if n := write(t, st, w, now, first); n != 1 {
		t.Fatalf("wrote %d cells, want 1", n)
	}
	var b store.Batch
	if _, changed, err := w.Put(&b, second, "", now+1); err != nil || !changed {
		t.Fatalf("got %v, %v, want a change", changed, err)
	}
	if err := st.Apply(t.Context(), &b); err != nil { // and nobody hears of it
		t.Fatal(err)
	}
	write(t, st, w, now+2, first)
	if got := list(t, families.Reader{Store: st, Tables: tables}, "", 0); !slices.Equal(got,
		[]string{`a: gauge "first" ""`}) {
		t.Errorf("got %q, want what was said last", got)
	}
}

// bounded is a Writer on a store, with senders that say families of their own.
type bounded struct {
	t   *testing.T
	st  store.Store
	w   *families.Writer
	now int64
}

// send has a sender say families of its own from one number to another, with a help of so many bytes, and says how many
// are in the store thereafter as they were said.
func (f *bounded) send(sender string, from, to, help int) (stored int) {
	f.t.Helper()
	if err := f.w.Load(f.t.Context(), f.now); err != nil {
		f.t.Fatal(err)
	}
	var changes []families.Change
	text := strings.Repeat("h", help)
	var b store.Batch
	for i := from; i < to; i++ {
		c, changed, err := f.w.Put(&b, said(fmt.Sprint(sender, i), "counter", text, ""), sender, f.now)
		if err != nil && !errors.Is(err, families.ErrLimited) {
			f.t.Fatal(err)
		}
		if err == nil {
			stored++
		}
		if changed {
			changes = append(changes, c)
		}
	}
	if err := f.st.Apply(f.t.Context(), &b); err != nil {
		f.t.Fatal(err)
	}
	f.w.Keep(changes)
	return stored
}

// check sees to it that the store has no more than it may, and that the Writer knows it.
func (f *bounded) check() {
	f.t.Helper()
	rows, bytes := 0, 0
	for row, err := range f.st.Scan(f.t.Context(), store.Scan{Table: catalog.DefaultTables().System,
		Ranges: []store.Range{{Start: []byte("m"), Stop: []byte("n")}}}) {
		if err != nil {
			f.t.Fatal(err)
		}
		rows++
		bytes += len(row.Key) - 1 + len(row.Cells[0].Value)
	}
	known, size := f.w.Size()
	if rows != known || bytes != size || rows > families.MaxFamilies || bytes > families.MaxBytes {
		f.t.Errorf("%d families with %d bytes are stored, and %d with %d known", rows, bytes, known, size)
	}
}

// One sender, and many, fill neither the store nor the part of others, by number and by bytes; what nobody says any
// more gives way.
func TestWriter_BoundsWhatIsStored(t *testing.T) {
	for name, c := range map[string]struct{ many, help int }{
		"number": {families.SenderFamilies, 1}, "bytes": {families.SenderBytes / (60 << 10), 60 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			st, tables := fixture(t)
			f := &bounded{t, st, families.NewWriter(st, tables), 1_795_253_864_620}
			if got := f.send("stranger", 0, 2*c.many, c.help); got < c.many*9/10 || got > c.many {
				t.Errorf("a stranger stored %d families, want some %d", got, c.many)
			}
			if got := f.send("honest", 0, 100, 50); got != 100 {
				t.Errorf("beside the stranger %d of 100 families were stored", got)
			}
			f.send("another", 0, 2*c.many, c.help)
			f.check()
			if got := f.send("late", 0, 100, c.help); got > c.many/50 {
				t.Errorf("with all places taken %d families were stored", got)
			}
			for range 2 { // a process that starts anew counts what is there
				f.now += 15 * 60_000
				f.w = families.NewWriter(st, tables)
				f.send("honest", 0, 100, 50)
				f.check()
			}
			for range 5 {
				f.now += 15 * 60_000
				if got := f.send("honest", 0, 100, 50); got != 100 {
					t.Errorf("of what is said all the time %d of 100 families are stored", got)
				}
			}
			if got := f.send("late", 0, c.many/10, c.help); got != c.many/10 {
				t.Errorf("when the strangers were quiet for an hour %d of %d families were stored", got, c.many/10)
			}
			f.check()
			if got := list(t, families.Reader{Store: st, Tables: tables}, "honest99", 0); len(got) != 1 {
				t.Errorf("what is said all the time is gone")
			}
		})
	}
}

// What a sender writes over again and again is bounded, too.
func TestWriter_BoundsWhatIsWritten(t *testing.T) {
	st, tables := fixture(t)
	f := &bounded{t, st, families.NewWriter(st, tables), 1_795_253_864_620}
	written := 0
	for i := range 1000 {
		written += f.send("stranger", 0, 1, 60<<10-i)
	}
	if most := families.MaxBytes / (59 << 10); written > most {
		t.Errorf("a family was written %d times, want %d at most", written, most)
	}
	if got := f.send("honest", 0, 100, 50); got != 100 {
		t.Errorf("beside the stranger %d of 100 families were stored", got)
	}
}
