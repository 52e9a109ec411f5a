package families_test

import (
	"bytes"
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

func said(family, typ, help, unit string) mapping.RequestMetadata {
	return mapping.RequestMetadata{Family: []byte(family), Type: typ, Help: []byte(help), Unit: []byte(unit)}
}

// write writes metadata as a request does, and says how many cells that took.
func write(t *testing.T, st store.Store, w *families.Writer, now int64, all ...mapping.RequestMetadata) int {
	t.Helper()
	var b store.Batch
	var changes []families.Change
	for _, m := range all {
		change, changed, err := w.Put(&b, m, now)
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
	w, other := families.NewWriter(tables), families.NewWriter(tables)
	a, b := said("a", "counter", "A <help>\n\"ü\".", ""), said("b", "gauge", "B", "seconds")
	now := int64(1_795_253_864_620)
	for step, c := range []struct {
		w     *families.Writer
		after int64
		said  []mapping.RequestMetadata
		want  int
	}{
		{w, 0, []mapping.RequestMetadata{a, b}, 2},
		{w, 60_000, []mapping.RequestMetadata{a, b, a, b}, 0},
		{w, 60_000, []mapping.RequestMetadata{a, said("b", "gauge", "B", "")}, 1},
		{w, 60_000, []mapping.RequestMetadata{a, b}, 1},
		{other, 60_000, []mapping.RequestMetadata{said("a", "gauge", "of another", "")}, 1},
		{w, 60_000, []mapping.RequestMetadata{a}, 0},
		// What another wrote, and nobody says any more, does not stay for ever.
		{w, 2 * 3600_000, []mapping.RequestMetadata{a}, 1},
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
	_, tables := fixture(t)
	w := families.NewWriter(tables)
	var b store.Batch
	for range 2 {
		if _, changed, err := w.Put(&b, said("a", "counter", "", ""), 1); err != nil || !changed {
			t.Errorf("changed %v, %v, want it to be written", changed, err)
		}
	}
}

func TestWriter_KnowsABoundedNumber(t *testing.T) {
	_, tables := fixture(t)
	w := families.NewWriter(tables)
	var b store.Batch
	for i := range families.MaxKnown + 10 {
		change, _, err := w.Put(&b, said(fmt.Sprint(i), "gauge", "", ""), 1)
		if err != nil {
			t.Fatal(err)
		}
		w.Keep([]families.Change{change})
		b.Reset()
	}
	if got := w.Known(); got > families.MaxKnown {
		t.Errorf("knows %d families, want at most %d", got, families.MaxKnown)
	}
}

func TestWriter_RefusesWhatCannotBeKept(t *testing.T) {
	_, tables := fixture(t)
	w := families.NewWriter(tables)
	var b store.Batch
	for _, m := range []mapping.RequestMetadata{
		said("", "counter", "help", ""), said("\xff", "counter", "", ""), said(strings.Repeat("x", 10_000), "counter", "", ""),
		said("a", "counter", strings.Repeat("x", 40_000), strings.Repeat("x", 40_000)),
	} {
		if _, changed, err := w.Put(&b, m, 1); changed || !errors.Is(err, mapping.ErrInvalid) || b.Len() > 0 {
			t.Errorf("%.20q: got %v, %v, %d cells, want ErrInvalid and none", m.Family, changed, err, b.Len())
		}
	}
	if _, _, err := w.Put(&b, said("a", "counter", "\xff", ""), 1); err != nil {
		t.Errorf("a help that is no UTF-8: %v", err)
	}
}

func TestReader_SaysWhatItCannotRead(t *testing.T) {
	st, tables := fixture(t)
	var b store.Batch
	b.Put(tables.Own, []byte("ma"), catalog.FamilyOwn, nil, 1, []byte("{"))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	r := families.Reader{Store: st, Tables: tables}
	stop := errors.New("enough")
	f := func(string, metadata.Metadata) error { return stop }
	if err := r.Metadata(context.Background(), "", 0, f); !errors.Is(err, mapping.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	write(t, st, families.NewWriter(tables), 2, said("a", "gauge", "", ""))
	if err := r.Metadata(context.Background(), "a", 0, f); !errors.Is(err, stop) {
		t.Errorf("got %v, want the callback's error", err)
	}
}

// A write whose outcome is not known leaves it open what the store has. What was there before is not known to be there
// still.
func TestWriter_WritesAgainWhatMayHaveBeenReplaced(t *testing.T) {
	st, tables := fixture(t)
	w := families.NewWriter(tables)
	now := int64(1_795_253_864_620)
	first, second := said("a", "gauge", "first", ""), said("a", "gauge", "second", "")
	if n := write(t, st, w, now, first); n != 1 {
		t.Fatalf("wrote %d cells, want 1", n)
	}
	var b store.Batch
	if _, changed, err := w.Put(&b, second, now+1); err != nil || !changed {
		t.Fatalf("got %v, %v, want a change", changed, err)
	}
	if err := st.Apply(t.Context(), &b); err != nil { // and nobody hears of it
		t.Fatal(err)
	}
	write(t, st, w, now+2, first)
	if got := list(t, families.Reader{Store: st, Tables: tables}, "", 0); !slices.Equal(got, []string{`a: gauge "first" ""`}) {
		t.Errorf("got %q, want what was said last", got)
	}
}

// A sender that says something else of each family all the time fills neither the store nor the memory of those who read it.
func TestWriter_BoundsWhatIsNew(t *testing.T) {
	w := families.NewWriter(catalog.DefaultTables())
	const now = 1_795_253_864_620
	help := bytes.Repeat([]byte("h"), 60<<10)
	put := func(i int, at int64) (size int, err error) {
		var b store.Batch
		m := mapping.RequestMetadata{Type: "counter", Family: fmt.Append(nil, "family", i), Help: help}
		c, changed, err := w.Put(&b, m, at)
		if changed {
			w.Keep([]families.Change{c})
			size = len(b.At(0).Value)
		}
		return size, err
	}
	stored, refused := 0, 0
	for i := range 5000 { // 300 MB
		n, err := put(i, now)
		stored += n
		if err != nil {
			if !errors.Is(err, families.ErrLimited) {
				t.Fatal(err)
			}
			refused++
		}
	}
	if stored > 64<<20 || stored < 32<<20 || refused == 0 {
		t.Errorf("%d bytes were stored and %d families refused, want up to 64 MiB", stored, refused)
	}
	if n, err := put(0, now+1); n != 0 || err != nil {
		t.Errorf("what is known costs %d bytes (%v), want none", n, err)
	}
	if n, err := put(4999, now+3600_000); n == 0 || err != nil {
		t.Errorf("after an hour: %d bytes, %v, want it stored", n, err)
	}
}
