package mapping_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

const rowBase = 0x50e22700 // 2013-01-01T00:00:00Z

// rowCell is a cell in hex.
type rowCell struct {
	qualifier string
	timestamp int64
	value     string
}

func (c rowCell) addTo(d *mapping.RowDecoder) error {
	qualifier, err := hex.DecodeString(c.qualifier)
	if err != nil {
		panic(err)
	}
	value, err := hex.DecodeString(c.value)
	if err != nil {
		panic(err)
	}
	return d.Add(qualifier, c.timestamp, value)
}

// decoded are the points of the cells as "offset in ms=value"; cells that are refused are left out.
func decoded(d *mapping.RowDecoder, cells []rowCell) (string, error) {
	var errs []error
	d.Reset(rowBase)
	for _, c := range cells {
		errs = append(errs, c.addTo(d))
	}
	var points mapping.Points
	d.AppendPoints(&points, 0, mapping.MaxTime)
	var text []string
	for i, t := range points.T {
		text = append(text, fmt.Sprintf("%d=%v", t-rowBase*1000, points.V[i]))
	}
	return strings.Join(text, " "), errors.Join(errs...)
}

func TestRowDecoder_ReadsEveryFormOfCell(t *testing.T) {
	var d mapping.RowDecoder
	for _, c := range []struct {
		name  string
		cells []rowCell
		want  string
	}{
		{"nothing", nil, ""},
		{"seconds", []rowCell{{"0010", 1, "05"}, {"002b", 1, "3fc00000"}, {"e0f7", 1, "0000000100000000"}},
			"1000=5 2000=1.5 3599000=4.294967296e+09"},
		{"milliseconds", []rowCell{{"f0000000", 1, "05"}, {"f000004f", 1, "3fb999999999999a"}, {"fdbb9fc1", 1, "ff00"}},
			"0=5 1=0.1 3599999=-256"},
		{"seconds by the length of the value",
			[]rowCell{{"0010", 1, "ff00"}, {"0027", 1, "05"}, {"0038", 1, "3ff8000000000000"}, {"004f", 1, "3fc00000"}},
			"1000=-256 2000=5 3000=1.5 4000=1.5"},
		{"float bug", []rowCell{{"001b", 1, "000000003fc00000"}}, "1000=1.5"},
		{"milliseconds by the flags",
			[]rowCell{{"f000000b", 1, "3fc0000000000000"}, {"f0000040", 1, "0500"}}, "0=1.5 1=5"},
		{"compacted seconds", []rowCell{{"00100021003b", 1, "05" + "0100" + "3fc00000" + "00"}},
			"1000=5 2000=256 3000=1.5"},
		{"compacted milliseconds", []rowCell{{"f0000000f0000041", 1, "05" + "0100" + "00"}}, "0=5 1=256"},
		{"compacted both", []rowCell{{"0010f000fa410050", 1, "01" + "012c" + "05" + "01"}}, "1000=1 1001=300 5000=5"},
		{"four bytes that are two points", []rowCell{{"00100020", 1, "010200"}}, "1000=1 2000=2"},
		{"last byte missing", []rowCell{{"00100020", 1, "0102"}}, "1000=1 2000=2"},
		{"last byte wrong and one more", []rowCell{{"00100020", 1, "01027f00"}}, "1000=1 2000=2"},
		{"compacted not sorted", []rowCell{{"002000100030", 1, "02010300"}}, "1000=1 2000=2 3000=3"},
		{"appended", []rowCell{{"050000", 1, "0010" + "05" + "f0000041" + "0100"}}, "1=256 1000=5"},
		{"appended, other offset", []rowCell{{"050001", 1, "001005"}}, "1000=5"},
		{"appended, empty", []rowCell{{"050000", 1, ""}}, ""},
		{"reserved bits", []rowCell{{"f0000070", 1, "05"}}, "1=5"},
		{"beyond the hour", []rowCell{{"e740", 1, "01"}, {"ffffffc0", 1, "02"}}, "3700000=1 4194303=2"},
		{"no points",
			[]rowCell{{"010000", 1, "7b"}, {"060000", 1, "2a"}, {"02ffff", 1, ""}, {"0100000000", 1, "7b"}}, ""},
	} {
		got, err := decoded(&d, c.cells)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestRowDecoder_OnePointOfAnInstantIsLeft(t *testing.T) {
	var d mapping.RowDecoder
	for _, c := range []struct {
		name  string
		cells []rowCell
		want  string
	}{
		{"larger timestamp", []rowCell{{"0010", 2, "01"}, {"f000fa00", 1, "02"}}, "1000=1"},
		{"larger timestamp, added last", []rowCell{{"f000fa00", 1, "02"}, {"0010", 2, "01"}}, "1000=1"},
		{"larger qualifier", []rowCell{{"f000fa00", 1, "02"}, {"0010", 1, "01"}}, "1000=2"},
		{"larger flags", []rowCell{{"f000000b", 1, "3fc00000"}, {"f0000000", 1, "02"}}, "0=1.5"},
		{"negative timestamps", []rowCell{{"0010", -1, "01"}, {"f000fa00", -2, "02"}}, "1000=1"},
		{"last of a compacted cell", []rowCell{{"001000100020", 1, "01020300"}}, "1000=2 2000=3"},
		{"last of an append cell", []rowCell{{"050000", 1, "0010010020030010" + "02"}}, "1000=2 2000=3"},
		{"newer point than in compacted", []rowCell{{"00100020", 1, "010200"}, {"0011", 2, "0007"}}, "1000=7 2000=2"},
		{"older point than in compacted", []rowCell{{"00100020", 2, "010200"}, {"0011", 1, "0007"}}, "1000=1 2000=2"},
		{"one version of a cell after another", []rowCell{{"0010", 2, "02"}, {"0010", 1, "01"}}, "1000=2"},
	} {
		got, err := decoded(&d, c.cells)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestRowDecoder_ACorruptCellCostsNoOther(t *testing.T) {
	var d mapping.RowDecoder
	good := []rowCell{{"0010", 1, "01"}, {"00200030", 1, "020300"}}
	for _, bad := range []rowCell{
		{"", 1, "00"},
		{"0040", 1, ""},
		{"0040", 1, "010203"},
		{"0048", 1, "00"},
		{"004b", 1, "3fc0000000000001"},
		{"f0001000", 1, ""},
		{"f0001001", 1, "00"},
		{"f0001002", 1, "000000"},
		{"f0001008", 1, "00"},
		{"f00f", 1, "00"},
		{"0000f000", 1, "0000"},
		{"004000500061", 1, "010203"},
		{"00400052", 1, "01020304"},
		{"050000", 1, "00"},
		{"050000", 1, "0040010051"},
		{"050000", 1, "00400100"},
		{"050000", 1, "004001f00000"},
		{"0500000000", 1, "004001"},
	} {
		got, err := decoded(&d, slices.Concat(good[:1], []rowCell{bad}, good[1:]))
		if want := "1000=1 2000=2 3000=3"; !errors.Is(err, mapping.ErrCorrupt) || got != want {
			t.Errorf("cell %+v: got %q, %v, want %q, ErrCorrupt", bad, got, err, want)
		}
		if err != nil && bad.qualifier != "" && !strings.Contains(err.Error(), "qualifier "+bad.qualifier) {
			t.Errorf("cell %+v: error %q does not name the qualifier", bad, err)
		}
	}
}

func TestRowDecoder_CountsCellsWithoutPoints(t *testing.T) {
	var d mapping.RowDecoder
	cells := []rowCell{
		{"010000", 1, "7b7d"}, {"0100000000", 1, "7b7d"}, {"060000", 1, "2a"},
		{"02", 1, ""}, {"07000000000000", 1, "00"}, {"0010", 1, "01"},
	}
	if _, err := decoded(&d, cells); err != nil {
		t.Fatal(err)
	}
	want := mapping.Skipped{Annotations: 2, Histograms: 1, Unknown: 2}
	if got := d.Skipped(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	d.Reset(0)
	if got := d.Skipped(); got != (mapping.Skipped{}) {
		t.Errorf("after Reset: got %+v, want none", got)
	}
}

func TestRowDecoder_AppendPointsIncludesBothEnds(t *testing.T) {
	for _, order := range [][]string{{"0010", "0020", "0030", "0040"}, {"0040", "0030", "0010", "0020"}} {
		var d mapping.RowDecoder
		d.Reset(rowBase)
		for _, q := range order {
			if err := (rowCell{q, 1, "01"}).addTo(&d); err != nil {
				t.Fatal(err)
			}
		}
		const ms = rowBase * 1000
		for _, c := range []struct {
			mint, maxt int64
			want       []int64
		}{
			{2000, 3000, []int64{2000, 3000}},
			{2001, 3999, []int64{3000}},
			{2001, 2999, nil},
			{4001, 9000, nil},
			{0, 999, nil},
			{3000, 2000, nil},
			{4000, math.MaxInt64 - ms, []int64{4000}},
		} {
			points := mapping.Points{T: []int64{7}, V: []float64{7}}
			d.AppendPoints(&points, ms+c.mint, ms+c.maxt)
			got := slices.Clone(points.T[1:])
			for i := range got {
				got[i] -= ms
			}
			if points.T[0] != 7 || !slices.Equal(got, c.want) || len(points.V) != len(points.T) {
				t.Errorf("order %v, from %d to %d: got %v, want %v", order, c.mint, c.maxt, got, c.want)
			}
		}
	}
}

func TestRowDecoder_TakesCellsAfterAppendPoints(t *testing.T) {
	var d mapping.RowDecoder
	got, _ := decoded(&d, []rowCell{{"0020", 1, "02"}, {"0010", 1, "01"}})
	if want := "1000=1 2000=2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := (rowCell{"0021", 2, "0009"}).addTo(&d); err != nil {
		t.Fatal(err)
	}
	var points mapping.Points
	d.AppendPoints(&points, 0, mapping.MaxTime)
	if !slices.Equal(points.V, []float64{1, 9}) {
		t.Errorf("got %v, want [1 9]", points.V)
	}
}

// modelPoint is a point with what decides between those of one instant, in the order of importance.
type modelPoint struct {
	timestamp int64
	qualifier []byte // of the cell
	position  int    // in the order of the cells as they were added
	value     float64
}

func (p modelPoint) compare(q modelPoint) int {
	return cmp.Or(
		cmp.Compare(p.timestamp, q.timestamp),
		bytes.Compare(p.qualifier, q.qualifier),
		cmp.Compare(p.position, q.position),
	)
}

func TestRowDecoder_AgreesWithAModel(t *testing.T) {
	var d mapping.RowDecoder // one for all rows, so that leftovers would show
	rapid.Check(t, func(t *rapid.T) {
		d.Reset(rowBase)
		model := map[int64]modelPoint{}
		position := 0
		for range rapid.IntRange(0, 8).Draw(t, "cells") {
			form := rapid.SampledFrom([]string{"single", "compacted", "appended"}).Draw(t, "form")
			timestamp := rapid.Int64Range(1, 3).Draw(t, "timestamp")
			n := 1
			if form != "single" {
				n = rapid.IntRange(2, 6).Draw(t, "points")
			}
			var qualifier, value, appended []byte
			var offsets []uint32
			var values []float64
			for range n {
				offset := rapid.Uint32Range(0, 8).Draw(t, "half seconds") * 500
				v := drawValue(t)
				vBytes, flags := mapping.AppendValue(nil, v)
				q := mapping.AppendQualifier(nil, offset, flags)
				if offset%1000 == 0 && rapid.Bool().Draw(t, "in seconds") {
					q = binary.BigEndian.AppendUint16(nil, uint16(offset/1000<<4)|uint16(flags))
				}
				qualifier, value = append(qualifier, q...), append(value, vBytes...)
				appended = append(append(appended, q...), vBytes...)
				offsets, values = append(offsets, offset), append(values, v)
			}
			switch form {
			case "compacted":
				value = append(value, 0)
			case "appended":
				qualifier, value = []byte{5, 0, 0}, appended
			}
			for i, offset := range offsets {
				p := modelPoint{timestamp, slices.Clone(qualifier), position, values[i]}
				position++
				at := rowBase*1000 + int64(offset)
				if old, ok := model[at]; !ok || old.compare(p) < 0 {
					model[at] = p
				}
			}
			if err := d.Add(qualifier, timestamp, value); err != nil {
				t.Fatal(err)
			}
			clear(qualifier) // the decoder must not keep what it was given
			clear(value)
		}
		var got mapping.Points
		d.AppendPoints(&got, 0, mapping.MaxTime)
		if want := slices.Sorted(maps.Keys(model)); !slices.Equal(got.T, want) {
			t.Fatalf("got times %v, want %v", got.T, want)
		}
		for i, at := range got.T {
			if want := model[at].value; math.Float64bits(got.V[i]) != math.Float64bits(want) {
				t.Fatalf("at %d: got %v, want %v", at, got.V[i], want)
			}
		}
	})
}

func TestRowDecoder_AllocatesNothingOnceWarm(t *testing.T) {
	qualifiers, values := benchmarkRow(rowShapes[2].value)
	qualifier, value := concat(qualifiers), append(concat(values), 0)
	var d mapping.RowDecoder
	var points mapping.Points
	decode := func() {
		d.Reset(rowBase)
		for i, q := range qualifiers {
			if err := d.Add(q, 1, values[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Add(qualifier, 1, value); err != nil {
			t.Fatal(err)
		}
		points.Reset()
		d.AppendPoints(&points, 0, mapping.MaxTime)
	}
	decode()
	if n := testing.AllocsPerRun(20, decode); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// FuzzRowDecoder takes rows as cells of 1 byte timestamp, 1 byte and qualifier, 1 byte and value.
func FuzzRowDecoder(f *testing.F) {
	for _, c := range []rowCell{
		{"0010", 1, "01"}, {"f000fa0b", 2, "3fc00000"},
		{"0010f000fa410050", 1, "01012c0501"}, {"050000", 1, "001005f00000410100"},
		{"010000", 1, "7b7d"}, {"001b", 1, "000000003fc00000"}, {"", 1, ""},
	} {
		qualifier, _ := hex.DecodeString(c.qualifier)
		value, _ := hex.DecodeString(c.value)
		cell := slices.Concat(
			[]byte{byte(c.timestamp), byte(len(qualifier))}, qualifier, []byte{byte(len(value))}, value)
		f.Add(cell)
		f.Add(slices.Concat(cell, cell))
		f.Add(slices.Concat([]byte("\x01\x02\x00\x20\x01\x07"), cell))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		var whole, good mapping.RowDecoder
		whole.Reset(rowBase)
		good.Reset(rowBase)
		take := func(n int) []byte {
			n = min(n, len(row))
			b := row[:n:n]
			row = row[n:]
			return b
		}
		length := func() int {
			if b := take(1); len(b) > 0 {
				return int(b[0])
			}
			return 0
		}
		for len(row) > 0 {
			timestamp := int64(length())
			qualifier := take(length())
			value := take(length())
			err := whole.Add(qualifier, timestamp, value)
			if err == nil {
				err = good.Add(qualifier, timestamp, value)
			}
			if err != nil && !errors.Is(err, mapping.ErrCorrupt) {
				t.Fatalf("qualifier %x: got %v, want ErrCorrupt", qualifier, err)
			}
		}
		var got, want mapping.Points
		whole.AppendPoints(&got, 0, mapping.MaxTime)
		good.AppendPoints(&want, math.MinInt64, math.MaxInt64)
		if !slices.Equal(got.T, want.T) || !slices.EqualFunc(got.V, want.V, sameValue) {
			t.Fatalf("with corrupt cells %v, without %v", got, want)
		}
		for i, at := range got.T {
			if i > 0 && at <= got.T[i-1] {
				t.Fatalf("times not ascending: %v", got.T)
			}
		}
	})
}
