package pebble_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

func openPacked(t testing.TB) store.Store {
	return open(t, pebble.Config{Dir: "db", FS: vfs.NewMem(), Packing: pebble.RunLength})
}

func TestPacking_Store(t *testing.T) { storetest.Run(t, openPacked) }
func TestPacking_Model(t *testing.T) { storetest.Model(t, openPacked) }

func TestPacking_StoreWithSmallTables(t *testing.T) {
	storetest.Run(t, func(t testing.TB) store.Store {
		return open(t, pebble.Config{Dir: "db", FS: vfs.NewMem(), MemTableBytes: 32 << 10, Packing: pebble.RunLength})
	})
}

// TestPacking_ComesAndGoes writes a store with a packing, without it, and with it again.
func TestPacking_ComesAndGoes(t *testing.T) {
	fs := vfs.NewMem()
	packed, other := strings.Repeat("q", 300), "a qualifier without a run"
	write := func(s store.Store, n int, qualifiers ...string) {
		t.Helper()
		var b store.Batch
		for _, q := range qualifiers {
			b.Put("data", []byte("r"), "f", []byte(q), 0, []byte(fmt.Sprint(n)))
		}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	read := func(s store.Store, qualifier string) (string, error) {
		g := store.Get{Table: "data", Rows: [][]byte{[]byte("r")}}
		if qualifier != "" {
			g.Columns = []store.Column{{Family: "f", Qualifier: []byte(qualifier)}}
		}
		rows, err := storetest.Collect(s.Get(t.Context(), g))
		return strings.Join(storetest.FormatRows(rows), ";"), err
	}
	s := open(t, pebble.Config{Dir: "db", FS: fs, Packing: pebble.RunLength})
	createData(t, s)
	write(s, 1, packed, other, "short")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, pebble.Config{Dir: "db", FS: fs})
	for _, q := range []string{other, "short"} {
		if got, err := read(s, q); err != nil || got != "r f:"+q+"=1" {
			t.Errorf("without the packing, %s is %s, %v", q, got, err)
		}
	}
	for _, q := range []string{packed, ""} {
		if _, err := read(s, q); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "without its packing") {
			t.Errorf("without the packing, a packed cell is %v, want ErrCorrupt that says so", err)
		}
	}
	at := store.Coord{Table: "data", Row: []byte("r"), Family: "f", Qualifier: []byte(packed)}
	if _, err := s.Increment(t.Context(), at, 1); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Increment of a packed cell without the packing = %v, want ErrCorrupt", err)
	}
	write(s, 2, packed, other) // the same cells, in another encoding
	if got, err := read(s, ""); err != nil || got != "r f:"+other+"=2 f:"+packed+"=2 f:short=1" {
		t.Errorf("after writes without the packing: %s, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, pebble.Config{Dir: "db", FS: fs, Packing: pebble.RunLength})
	write(s, 3, packed)
	if got, err := read(s, ""); err != nil || got != "r f:"+other+"=2 f:"+packed+"=3 f:short=1" {
		t.Errorf("with the packing again: %s, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestPacking_ReadsDoNotAllocatePerCell compares scans of rows with few and with many packed cells.
func TestPacking_ReadsDoNotAllocatePerCell(t *testing.T) {
	s := openPacked(t)
	if err := s.CreateTable(t.Context(), store.Table{Name: "data", Families: []string{"f"}}); err != nil {
		t.Fatal(err)
	}
	for _, cells := range []int{1, 1001} {
		var b store.Batch
		for row := range 10 {
			for i := range cells {
				q := fmt.Sprintf("%s%04d", strings.Repeat("q", 100), i) // begin alike, so that they have to be sorted
				b.Put("data", fmt.Appendf(nil, "%04d row %d", cells, row), "f", []byte(q), 0, make([]byte, 100))
			}
		}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	scan := func(start, stop string, want int) float64 {
		return testing.AllocsPerRun(1, func() {
			cells := 0
			for row, err := range s.Scan(t.Context(), store.Scan{Table: "data", Ranges: []store.Range{
				{Start: []byte(start), Stop: []byte(stop)},
			}}) {
				if err != nil {
					t.Fatal(err)
				}
				cells += len(row.Cells)
			}
			if cells != want {
				t.Fatalf("%d cells, want %d", cells, want)
			}
		})
	}
	few, many := scan("0001", "0002", 10), scan("1001", "1002", 10010)
	for range 20 { // with the race detector the tree checks some iterators, at random, and allocates for that
		many = min(many, scan("1001", "1002", 10010))
	}
	if many > few+100 { // the memory of a row grows a few times
		t.Errorf("%.0f allocations for 10,010 cells, %.0f for 10", many, few)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
