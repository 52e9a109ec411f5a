package client

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestRegionMap_FindsTheRegionOfEveryRow(t *testing.T) {
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
			r := &Region{Start: start, Name: append([]byte("r"), start...), id: uint64(i)}
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
		// Some of it is found at a time, and may be found again.
		var l regionMap
		for len(l.regions) < len(present) {
			from := rapid.IntRange(0, len(present)-1).Draw(t, "from")
			to := rapid.IntRange(from+1, len(present)).Draw(t, "to")
			if moved := l.replace(present[from:to], to == len(present)); moved != 0 {
				t.Fatalf("%d regions moved, want none", moved)
			}
			if !slices.IsSortedFunc(l.regions, func(a, b *Region) int { return bytes.Compare(a.Start, b.Start) }) {
				t.Fatal("regions are not in order")
			}
			for i, r := range l.regions {
				if l.heads[i] != head(r.Start) || i > 0 && r == l.regions[i-1] {
					t.Fatalf("region %d has another head, or comes twice", i)
				}
			}
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

func TestRegionMap_ReplacesWhatWasThere(t *testing.T) {
	at := func(port uint16) wire.ServerName { return wire.ServerName{Host: "h", Port: port} }
	region := func(start, end string, id uint64, port uint16) *Region {
		return &Region{
			Name: []byte(start + string(rune('0'+id))), Start: []byte(start), End: []byte(end), id: id, Server: at(port),
		}
	}
	a, b, c, d := region("", "b", 1, 1), region("b", "c", 1, 1), region("c", "d", 1, 1), region("d", "", 1, 1)
	for _, test := range []struct {
		name  string
		found []*Region
		whole bool
		moved int
		want  string
	}{
		{"the same", []*Region{region("b", "c", 1, 1)}, false, 0, "1 b1 c1 d1"},
		{"another server", []*Region{region("b", "c", 1, 2)}, false, 1, "1 b1 c1 d1"},
		{"a split", []*Region{region("b", "bb", 2, 1), region("bb", "c", 2, 1)}, false, 2, "1 b2 bb2 c1 d1"},
		{"a merge", []*Region{region("b", "d", 2, 1)}, false, 1, "1 b2 d1"},
		{"the last ones", []*Region{region("c", "", 2, 1)}, true, 1, "1 b1 c2"},
		{"a hole", []*Region{region("b", "bb", 2, 1), region("d", "", 1, 1)}, true, 1, "1 b2 d1"},
		{"a hole at the end", []*Region{region("b", "c", 1, 1)}, true, 0, "1 b1"},
		{"all", []*Region{region("", "", 3, 1)}, true, 1, "3"},
	} {
		var m regionMap
		m.replace([]*Region{a, b, c, d}, true)
		moved := m.replace(test.found, test.whole)
		var got []string
		for _, r := range m.regions {
			got = append(got, string(r.Name))
		}
		if strings.Join(got, " ") != test.want || moved != test.moved || len(m.heads) != len(m.regions) {
			t.Errorf("%s: got %q and %d moved, want %q and %d", test.name, got, moved, test.want, test.moved)
		}
	}
	var m regionMap
	m.replace([]*Region{a, b, c, d}, true)
	if !m.put(b, b.at(at(3))) || m.regions[1].Server != at(3) || b.Server != at(1) || m.put(b, b) {
		t.Error("put changes the region it is given, or not the map, or what is not there")
	}
	c.used.Store(true)
	if m.evict(1); len(m.regions) != 1 || m.regions[0] != c || m.heads[0] != head(c.Start) {
		t.Errorf("evict left %d regions, and not the one that is used", len(m.regions))
	}
}
