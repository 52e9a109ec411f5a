package client

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestLayout_FindsTheRegionOfEveryRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		common := rapid.SampledFrom([]string{"", "salt", "salt+uid"}).Draw(t, "common")
		key := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, ',', 'a', 'b', 0xff}), 1, 3), func(k []byte) []byte {
			return append([]byte(common), k...)
		})
		starts := rapid.SliceOfNDistinct(key, 0, 8, func(k []byte) string { return string(k) }).Draw(t, "starts")
		slices.SortFunc(starts, bytes.Compare)
		starts = append([][]byte{nil}, starts...)
		var regions []*Region
		for i, start := range starts {
			r := &Region{Start: start, Name: append([]byte("r"), start...), info: wire.RegionInfo{ID: uint64(i)}}
			if i+1 < len(starts) {
				r.End = starts[i+1]
			}
			regions = append(regions, r)
		}
		hole := rapid.IntRange(0, len(regions)).Draw(t, "hole") // the last value stands for none
		present := slices.Clone(regions)
		if hole < len(present) {
			present = slices.Delete(present, hole, hole+1)
		}
		present = rapid.Permutation(present).Draw(t, "order")
		l, moved := newLayout("t", present, nil, 1)
		if moved != len(present) {
			t.Fatalf("%d regions moved, want %d", moved, len(present))
		}
		row := key.Draw(t, "row")
		for i, r := range regions {
			switch got := l.find(row); {
			case !r.holds(row) || i == hole:
				if got == r {
					t.Fatalf("row %x is found in %x", row, r.Start)
				}
			case got != r:
				t.Fatalf("row %x is found in %v, want %x", row, got, r.Start)
			}
			// What ends at a region's start is the region before.
			if i > 0 && i-1 != hole {
				if got := l.before(r.Start); got != regions[i-1] {
					t.Fatalf("before %x is %v, want %x", r.Start, got, regions[i-1].Start)
				}
			}
		}
	})
}

func TestNewLayout_KeepsLimitersAndCountsMoves(t *testing.T) {
	at := func(port uint16) wire.ServerName { return wire.ServerName{Host: "h", Port: port} }
	old, _ := newLayout("t", []*Region{
		{Name: []byte("a"), Server: at(1)}, {Name: []byte("b"), Start: []byte("b"), Server: at(1)},
	}, nil, 1)
	l, moved := newLayout("t", []*Region{
		{Name: []byte("a"), Server: at(1)}, {Name: []byte("b"), Start: []byte("b"), Server: at(2)},
		{Name: []byte("c"), Start: []byte("c"), Server: at(2)},
	}, old, 1)
	if moved != 2 {
		t.Errorf("got %d moves, want 2", moved)
	}
	if l.regions[1].slots != old.regions[1].slots {
		t.Error("a region that moved has lost its limiter")
	}
	if there := l.moved([]byte("a"), at(3)); there.regions[0].Server != at(3) || l.regions[0].Server != at(1) {
		t.Error("moved changes the layout it is given, or not the new one")
	}
}
