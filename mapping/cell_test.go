package mapping_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

var anyValue = rapid.OneOf(
	rapid.Map(rapid.Int64(), func(i int64) float64 { return float64(i) }),
	rapid.Map(rapid.IntRange(-300, 300), func(i int) float64 { return float64(i) }),
	rapid.Map(rapid.Uint64(), math.Float64frombits),
)

// decodeRow reads cells as a query does. One without a qualifier is a point list.
func decodeRow(t *rapid.T, cells []cell) mapping.Points {
	var d mapping.RowDecoder
	d.Reset(0)
	for _, c := range cells {
		var err error
		if c.qualifier == nil {
			err = d.AddPoints(c.value, c.timestamp)
		} else {
			err = d.Add(c.qualifier, c.timestamp, c.value)
		}
		if err != nil {
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
	if !slices.Equal(a.T, b.T) {
		return false
	}
	for i := range a.T {
		if math.Float64bits(a.V[i]) != math.Float64bits(b.V[i]) || !sameHistogram(a.Histogram(i), b.Histogram(i)) {
			return false
		}
	}
	return true
}

// sameHistogram compares to the bit: NaNs are not equal otherwise.
func sameHistogram(a, b mapping.Histogram) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	x, errX := a.AppendStored(nil)
	y, errY := b.AppendStored(nil)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// anyHistogram draws an integer or float histogram, with exponential or custom buckets, or a stale marker.
var anyHistogram = rapid.Custom(func(t *rapid.T) mapping.Histogram {
	n := rapid.IntRange(0, 40).Draw(t, "n")
	h := []*histogram.Histogram{
		tsdbutil.GenerateTestHistogram(int64(n)), tsdbutil.GenerateTestCustomBucketsHistogram(int64(n)),
		tsdbutil.GenerateTestGaugeHistogram(int64(n)), {Sum: math.Float64frombits(value.StaleNaN)},
	}[rapid.IntRange(0, 3).Draw(t, "form")]
	h.CounterResetHint = histogram.CounterResetHint(rapid.IntRange(0, 3).Draw(t, "hint"))
	stored := mapping.Histogram{Int: h}
	if rapid.Bool().Draw(t, "float") {
		stored = mapping.Histogram{Float: h.ToFloat(nil)}
	}
	return stored
})

// store is a histogram as cells hold it.
func store(t rapid.TB, h mapping.Histogram) []byte {
	b, err := h.AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// appendAny adds the same number or histogram to a point list and to points.
func appendAny(t *rapid.T, list []byte, points *mapping.Points, offset uint32) []byte {
	if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
		v := anyValue.Draw(t, "v")
		points.Append(int64(offset), v)
		return mapping.AppendPoint(list, offset, v)
	}
	h := anyHistogram.Draw(t, "histogram")
	points.AppendHistogram(int64(offset), h)
	return mapping.AppendHistogramPoint(list, offset, store(t, h))
}

func TestAppendCell_HoldsThePointsOfTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offsets := rapid.SliceOfNDistinct(rapid.Uint32Range(0, mapping.HourMs-1), 1, 50, rapid.ID).Draw(t, "offsets")
		slices.Sort(offsets)
		var list []byte
		var want mapping.Points
		for _, o := range offsets {
			list = appendAny(t, list, &want, o)
		}
		var m mapping.CellMerger
		m.AddPoints(list, 1)
		cells := cellsOf(func(q, v []byte) ([]byte, []byte) { return mapping.AppendCell(q, v, list) }, &m)
		if got := decodeRow(t, cells); !samePoints(got, want) {
			t.Errorf("cells %x hold %v, want %v", cells, got, want)
		}
		if got := decodeRow(t, []cell{{nil, list, 1}}); !samePoints(got, want) {
			t.Errorf("the list holds %v, want %v", got, want)
		}
		numbers := 4 * (len(offsets) - len(want.H) + countZero(want.H))
		if c := cells[0]; numbers > 0 && (len(c.qualifier) != numbers || numbers > 4 && c.value[len(c.value)-1] != 0) {
			t.Errorf("%d points made the qualifier %x and the value %x", numbers/4, c.qualifier, c.value)
		}
		at := rapid.SampledFrom(offsets).Draw(t, "at")
		i, _ := slices.BinarySearch(offsets, at)
		var one mapping.Points
		one.AppendPoint(&want, i)
		if got := decodeRow(t, []cell{{nil, mapping.FindPoint(list, at), 1}}); !samePoints(got, one) {
			t.Errorf("FindPoint(%d) found %v, want %v", at, got, one)
		}
		if got := mapping.FindPoint(list, mapping.HourMs); got != nil {
			t.Errorf("FindPoint beyond the hour found %x", got)
		}
	})
}

// cellsOf are the cells that points and histograms make.
func cellsOf(appendCell func(q, v []byte) ([]byte, []byte), m *mapping.CellMerger) (cells []cell) {
	if q, v := appendCell(nil, nil); len(q)+len(v) > 0 {
		cells = append(cells, cell{q, v, 1})
	}
	for offset, stored := range m.Histograms() {
		cells = append(cells, cell{mapping.AppendHistogramQualifier(nil, offset), stored, 1})
	}
	return cells
}

func countZero(histograms []mapping.Histogram) (n int) {
	for _, h := range histograms {
		if h.IsZero() {
			n++
		}
	}
	return n
}

// A merged row answers what the row answered before, and its cell is as OpenTSDB would have made it.
func TestCellMerger_KeepsWhatTheRowSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells []cell
		var m mapping.CellMerger
		offset := rapid.Uint32Range(0, 20)
		for range rapid.IntRange(0, 5).Draw(t, "cells") {
			c := cell{timestamp: rapid.Int64Range(0, 3).Draw(t, "timestamp")}
			if rapid.IntRange(0, 3).Draw(t, "form") == 0 {
				c.qualifier = mapping.AppendHistogramQualifier(nil, offset.Draw(t, "ms")*500)
				c.value = store(t, anyHistogram.Draw(t, "histogram"))
				cells = append(cells, c)
				if err := m.Add(c.qualifier, c.timestamp, c.value); err != nil {
					t.Fatal(err)
				}
				continue
			}
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
			list = appendAny(t, list, new(mapping.Points), offset.Draw(t, "ms")*500)
		}
		m.AddPoints(list, 9)
		cells = append(cells, cell{nil, list, 9})
		want := decodeRow(t, cells)
		merged := cellsOf(m.AppendCell, &m)
		for _, c := range cells {
			if c.qualifier != nil && mapping.IsHistogramCell(c.qualifier) && m.HasHistogram(c.qualifier) {
				merged = append(merged, cell{c.qualifier, c.value, c.timestamp - 10}) // stays, below those that come in its place
			}
		}
		if got := decodeRow(t, merged); !samePoints(got, want) {
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
		"histogram in seconds":    {qualifier: []byte{0x48, 0, 0, 0, 0}},
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
