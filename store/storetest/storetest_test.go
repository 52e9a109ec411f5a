package storetest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

func openMem(testing.TB) store.Store { return storetest.NewMem() }

func TestMem(t *testing.T)      { storetest.Run(t, openMem) }
func TestMemModel(t *testing.T) { storetest.Model(t, openMem) }

func BenchmarkMem(b *testing.B) { storetest.Benchmark(b, openMem) }

func TestFaulty_WithoutFaultsIsTheStore(t *testing.T) {
	open := func(testing.TB) store.Store { return storetest.Faulty(storetest.NewMem()) }
	storetest.Run(t, open)
}

// Neighbours in the same store have rows with the same keys as the one under test.
func TestPrefixed_IsAStoreOfItsOwn(t *testing.T) {
	storetest.Model(t, func(t testing.TB) store.Store {
		mem := storetest.NewMem()
		if err := mem.CreateTable(t.Context(), store.Table{Name: "data", Families: []string{"clock", "timed"}}); err != nil {
			t.Fatal(err)
		}
		for _, neighbour := range []string{"1", "3"} {
			var b store.Batch
			for _, row := range []string{"\x00", "m", "n", "\xff"} {
				b.Put("data", []byte(row), "timed", []byte("q"), 1, []byte("a neighbour's"))
			}
			if err := storetest.Prefixed(mem, neighbour).Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		return storetest.Prefixed(mem, "2")
	})
}

func TestFaulty_FailsTheCallItIsTold(t *testing.T) {
	own := errors.New("own")
	for _, c := range []struct {
		name  string
		fault storetest.Fault
		errs  []error // of three increments
		last  int64   // what the cell holds
	}{
		{"before", storetest.Fault{Verb: storetest.Increment, Call: 2}, []error{nil, store.ErrUnavailable, nil}, 2},
		{"after", storetest.Fault{Verb: storetest.Increment, Call: 2, When: storetest.After},
			[]error{nil, store.ErrUnavailable, nil}, 3},
		{"every", storetest.Fault{Verb: storetest.Increment, Err: own}, []error{own, own, own}, 0},
		{"any verb", storetest.Fault{Call: 4, Err: own}, []error{nil, nil, own}, 2},
		{"another verb", storetest.Fault{Verb: storetest.Apply}, []error{nil, nil, nil}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, mem := t.Context(), storetest.NewMem()
			s := storetest.Faulty(mem, c.fault)
			if err := s.CreateTable(ctx, store.Table{Name: "t", Families: []string{"f"}}); err != nil {
				t.Fatal(err)
			}
			at := store.Coord{Table: "t", Row: []byte("r"), Family: "f"}
			for i, want := range c.errs {
				if _, err := s.Increment(ctx, at, 1); !errors.Is(err, want) {
					t.Errorf("call %d = %v, want %v", i+1, err, want)
				}
			}
			if got, err := mem.Increment(ctx, at, 0); err != nil || got != c.last {
				t.Errorf("the cell holds %d, %v, want %d", got, err, c.last)
			}
			if got := s.Calls(storetest.Increment); got != 3 {
				t.Errorf("Calls(Increment) = %d, want 3", got)
			}
			if got := s.Calls(storetest.Any); got != 4 {
				t.Errorf("Calls(Any) = %d, want 4", got)
			}
		})
	}
}

func TestFaulty_CutsScansMidway(t *testing.T) {
	for _, c := range []struct {
		fault storetest.Fault
		rows  int
	}{
		{storetest.Fault{Verb: storetest.Scan}, 0},
		{storetest.Fault{Verb: storetest.Scan, When: storetest.Midway}, 0},
		{storetest.Fault{Verb: storetest.Scan, When: storetest.Midway, Rows: 2}, 2},
		{storetest.Fault{Verb: storetest.Scan, When: storetest.Midway, Rows: 9}, 3},
		{storetest.Fault{Verb: storetest.Scan, When: storetest.After}, 3},
	} {
		ctx := t.Context()
		s := storetest.Faulty(storetest.NewMem(), c.fault)
		fill(ctx, t, s, "a", "b", "c")
		got, err := storetest.Collect(s.Scan(ctx, store.Scan{Table: "t"}))
		if len(got) != c.rows || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%+v: %d rows, %v, want %d and ErrUnavailable", c.fault, len(got), err, c.rows)
		}
	}
}

func TestMem_PoisonsRowsThatWereHandedOut(t *testing.T) {
	ctx, s := t.Context(), storetest.NewMem()
	fill(ctx, t, s, "a", "b")
	var kept []byte
	for row, err := range s.Scan(ctx, store.Scan{Table: "t"}) {
		if err != nil {
			t.Fatal(err)
		}
		if kept == nil {
			kept = row.Key
		}
	}
	if string(kept) == "a" {
		t.Error("a key is still readable after the iteration")
	}
}

func fill(ctx context.Context, t *testing.T, s store.Store, rows ...string) {
	t.Helper()
	if err := s.CreateTable(ctx, store.Table{Name: "t", Families: []string{"f"}}); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for _, r := range rows {
		b.Put("t", []byte(r), "f", nil, 0, []byte("v"))
	}
	if err := s.Apply(ctx, &b); err != nil {
		t.Fatal(err)
	}
}
