package mapping_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

var anyValue = rapid.OneOf(
	rapid.Map(rapid.Int64(), func(i int64) float64 { return float64(i) }),
	rapid.Map(rapid.IntRange(-300, 300), func(i int) float64 { return float64(i) }),
	rapid.Map(rapid.Uint64(), math.Float64frombits),
)

// decodeRow reads cells as a query does.
func decodeRow(t *rapid.T, cells []cell) mapping.Points {
	var d mapping.RowDecoder
	d.Reset(0)
	for _, c := range cells {
		if err := d.Add(c.qualifier, c.timestamp, c.value); err != nil {
			t.Fatal(err)
		}
	}
	var p mapping.Points
	d.AppendPoints(&p, 0, math.MaxInt64)
	return p
}

type cell struct {
	qualifier, value []byte
	timestamp        int64
}

func samePoints(a, b mapping.Points) bool {
	return slices.Equal(a.T, b.T) && slices.EqualFunc(a.V, b.V, func(x, y float64) bool {
		return math.Float64bits(x) == math.Float64bits(y)
	})
}

func TestAppendCell_HoldsThePointsOfTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offsets := rapid.SliceOfNDistinct(rapid.Uint32Range(0, mapping.HourMs-1), 1, 50, rapid.ID).Draw(t, "offsets")
		slices.Sort(offsets)
		var list []byte
		var want mapping.Points
		for _, o := range offsets {
			v := anyValue.Draw(t, "v")
			list = mapping.AppendPoint(list, o, v)
			want.Append(int64(o), v)
		}
		q, v := mapping.AppendCell(nil, nil, list)
		if got := decodeRow(t, []cell{{q, v, 1}}); !samePoints(got, want) {
			t.Errorf("cell %x %x holds %v, want %v", q, v, got, want)
		}
		if got := decodeRow(t, []cell{{[]byte{5, 0, 0}, list, 1}}); !samePoints(got, want) {
			t.Errorf("as an append cell the list holds %v, want %v", got, want)
		}
		if len(q) != 4*len(offsets) || (len(offsets) > 1) != (v[len(v)-1] == 0 && len(v) == len(list)-len(q)+1) {
			t.Errorf("%d points made the qualifier %x and the value %x", len(offsets), q, v)
		}
		at := rapid.SampledFrom(offsets).Draw(t, "at")
		value, flags := mapping.FindPoint(list, at)
		found, err := mapping.ParseValue(value, flags)
		i, _ := slices.BinarySearch(offsets, at)
		if err != nil || math.Float64bits(found) != math.Float64bits(want.V[i]) {
			t.Errorf("FindPoint(%d) = %v, %v, want %v", at, found, err, want.V[i])
		}
		if value, _ := mapping.FindPoint(list, mapping.HourMs); value != nil {
			t.Errorf("FindPoint beyond the hour found %x", value)
		}
	})
}

// A merged row answers what the row answered before, and its cell is as OpenTSDB would have made it.
func TestCellMerger_KeepsWhatTheRowSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells []cell
		var m mapping.CellMerger
		offset := rapid.Uint32Range(0, 20)
		for range rapid.IntRange(0, 5).Draw(t, "cells") {
			c := cell{timestamp: rapid.Int64Range(0, 3).Draw(t, "timestamp")}
			for range rapid.IntRange(1, 4).Draw(t, "points") {
				var flags byte
				c.value, flags = mapping.AppendValue(c.value, anyValue.Draw(t, "v"))
				if rapid.Bool().Draw(t, "seconds") {
					c.qualifier = append(c.qualifier, byte(offset.Draw(t, "s")>>4), byte(offset.Draw(t, "s")<<4)|flags)
				} else {
					c.qualifier = mapping.AppendQualifier(c.qualifier, offset.Draw(t, "ms")*500, flags)
				}
			}
			if len(c.qualifier) > 4 || len(c.qualifier) == 4 && c.qualifier[0] < 0xf0 {
				c.value = append(c.value, 1)
			}
			cells = append(cells, c)
			if err := m.Add(c.qualifier, c.timestamp, c.value); err != nil {
				t.Fatal(err)
			}
		}
		var list []byte
		for range rapid.IntRange(0, 4).Draw(t, "list") {
			list = mapping.AppendPoint(list, offset.Draw(t, "ms")*500, anyValue.Draw(t, "v"))
		}
		m.AddPoints(list, 9)
		if list != nil {
			cells = append(cells, cell{[]byte{5, 0, 0}, list, 9})
		}
		want := decodeRow(t, cells)
		q, v := m.AppendCell(nil, nil)
		if want.Len() == 0 {
			if len(q)+len(v) > 0 {
				t.Fatalf("no points make the cell %x %x", q, v)
			}
			return
		}
		if got := decodeRow(t, []cell{{q, v, 1}}); !samePoints(got, want) {
			t.Errorf("merged %v, want %v", got, want)
		}
	})
}

func TestCellMerger_RefusesWhatItCannotKeep(t *testing.T) {
	for name, c := range map[string]cell{
		"empty qualifier":         {value: []byte{1}},
		"annotation":              {qualifier: []byte{1, 0, 0}, value: []byte("{}")},
		"append cell":             {qualifier: []byte{5, 0, 0}, value: []byte{0, 0x10, 7}},
		"value too short":         {qualifier: []byte{0, 0x11}, value: []byte{7}},
		"old float of 8 bytes":    {qualifier: []byte{0, 0x1b}, value: []byte{0, 0, 0, 0, 0x40, 0, 0, 0}},
		"integer of three bytes":  {qualifier: []byte{0, 0x12}, value: []byte{1, 2, 3}},
		"bytes behind the values": {qualifier: []byte{0, 0x10, 0, 0x20}, value: []byte{1, 2, 0, 0}},
	} {
		var m mapping.CellMerger
		if err := m.Add(c.qualifier, 1, c.value); !errors.Is(err, mapping.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}

func BenchmarkAppendCell(b *testing.B) {
	var list []byte
	for i := range uint32(240) {
		list = mapping.AppendPoint(list, i*15_000, float64(i)*float64(cmp.Compare(i%3, 1))+0.5*float64(i%2))
	}
	var q, v []byte
	b.ReportAllocs()
	for b.Loop() {
		q, v = mapping.AppendCell(q[:0], v[:0], list)
	}
	b.ReportMetric(240*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	if bytes.Equal(q, v) {
		b.Fatal("never")
	}
}
