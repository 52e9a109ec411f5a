package pack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/pack"
)

var staleness = math.Float64frombits(0x7ff0000000000002)

// checkExpand tells whether packed gives the cell back.
func checkExpand(t interface{ Fatalf(string, ...any) }, packed []byte, c cell) {
	before := []byte("before")
	out, n, err := pack.Expand(before, packed)
	if err != nil {
		t.Fatalf("expand %x: %v, want qualifier %x, value %x", packed, err, c.qualifier, c.value)
	}
	out, ok := bytes.CutPrefix(out, before)
	if !ok || !bytes.Equal(out[:n], c.qualifier) || !bytes.Equal(out[n:], c.value) {
		t.Fatalf("expand %x: got qualifier %x, value %x\nwant qualifier %x, value %x",
			packed, out[:n], out[n:], c.qualifier, c.value)
	}
}

// checkAppend packs the cell, if it can be, and tells whether it comes back.
func checkAppend(t interface{ Fatalf(string, ...any) }, c cell) (ok bool) {
	before := []byte("before")
	packed, ok := pack.Append(before, c.qualifier, c.value)
	packed, found := bytes.CutPrefix(packed, before)
	switch {
	case !found || !ok && len(packed) > 0:
		t.Fatalf("append %x, %x: got %x, %t behind other bytes", c.qualifier, c.value, packed, ok)
	case ok && len(packed) >= len(c.qualifier)+len(c.value):
		t.Fatalf("append %x, %x: got %d bytes, %x", c.qualifier, c.value, len(packed), packed)
	case ok:
		checkExpand(t, packed, c)
	}
	return ok
}

// sumOf is a counter to which up to 1000 times a second's part is added at a time, as a histogram's sum of seconds is
// one. Without errors it takes as many bits as the part has to be told by.
func sumOf(part float64) func(int) float64 {
	r, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	return func(int) float64 {
		for range 1 + r.IntN(5) {
			sum += float64(r.Int64N(int64(1/part))) * part
		}
		return sum
	}
}

func TestAppend_TakesFewBytesForRegularSeries(t *testing.T) {
	steady := func(i int) uint32 { return 1234 + uint32(i)*15_000 }
	jittered := func(i int) uint32 { return steady(i) + uint32(i*i%7) }
	withGap := func(i int) uint32 { return steady(i + i/100*7) }
	for _, c := range []struct {
		name  string
		time  func(i int) uint32
		value func(i int) float64
		want  int // bytes for 200 points, at most
	}{
		{"constant", steady, func(int) float64 { return 1 }, 18},
		{"constant full precision", steady, func(int) float64 { return math.Pi }, 27},
		{"constant zero with a minus", steady, func(int) float64 { return math.Copysign(0, -1) }, 27},
		{"always stale", steady, func(int) float64 { return staleness }, 27},
		{"steady counter", steady, func(i int) float64 { return float64(1e9 + 37*i) }, 24},
		{"steady counter of decimals", steady, func(i int) float64 { return float64(10_000+25*i) / 100 }, 20},
		{"accelerating", steady, func(i int) float64 { return float64(i * i) }, 22},
		{"stale at the end", steady, func(i int) float64 { return []float64{float64(i), staleness}[i/199] }, 30},
		{"stale at the beginning", steady, func(i int) float64 { return []float64{staleness, float64(i)}[min(i, 1)] }, 30},
		{"counter with a reset", steady, func(i int) float64 { return float64(i%150) * 1000 }, 26},
		{"gap of scrapes", withGap, func(int) float64 { return 1 }, 25},
		{"jitter of 3 bits", jittered, func(int) float64 { return 1 }, 24 + 200*3/8},
		{"multiples of pages", steady, func(i int) float64 { return 4096 * float64(1e6+i*i%16) }, 26 + 200*4/8},
		{"decimals with errors", steady, func(i int) float64 { return 0.1*float64(i*i%16) + 0.2 }, 140},
		{"sum of nanoseconds", steady, sumOf(1e-9), 870},
		{"sum of hundredths", steady, sumOf(1e-2), 285},
		{"halves", steady, func(i int) float64 { return float64(i*i%16) / 2 }, 22 + 200*4/8},
		{"rarely moving", steady, func(i int) float64 { return float64(i / 45) }, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			var times []uint32
			var values []float64
			for i := range 200 {
				times, values = append(times, c.time(i)), append(values, c.value(i))
			}
			cell := makeCell(times, values)
			packed, ok := pack.Append(nil, cell.qualifier, cell.value)
			if !ok || len(packed) > c.want {
				t.Fatalf("got %t, %d bytes, want at most %d: %x", ok, len(packed), c.want, packed)
			}
			checkExpand(t, packed, cell)
		})
	}
}

func TestAppend_GivesUp(t *testing.T) {
	ms := func(n int, at, flags uint32) []byte {
		var q []byte
		for i := range n {
			q = binary.BigEndian.AppendUint32(q, 0xf0000000|(at+uint32(i))<<6|flags)
		}
		return q
	}
	seconds := func(n int, flags uint16) []byte {
		var q []byte
		for i := range n {
			q = binary.BigEndian.AppendUint16(q, uint16(i)<<4|flags)
		}
		return q
	}
	const many = 100
	for _, c := range []struct {
		name             string
		qualifier, value []byte
	}{
		{"no bytes", nil, nil},
		{"one point in seconds", seconds(1, 0), make([]byte, 1)},
		{"one point in milliseconds", ms(1, 0, 0), make([]byte, 1)},
		{"odd qualifier", append(ms(many, 0, 0), 0), make([]byte, many)},
		{"half a qualifier", append(ms(many, 0, 0), 0, 0), make([]byte, many)},
		{"annotation", []byte{1, 0, 0}, []byte(`{"description":"a note"}`)},
		{"append cell", []byte{5, 0, 0}, make([]byte, many)},
		{"seconds behind milliseconds", append(ms(many, 0, 0), seconds(2, 0)...), make([]byte, many+2)},
		{"milliseconds behind seconds", append(seconds(many, 0), ms(2, 0, 0)...), make([]byte, many+2)},
		{"reserved bits", ms(many, 0, 0x10), make([]byte, many)},
		{"integers of 3 bytes", ms(many, 0, 2), make([]byte, 3*many)},
		{"floats of 2 bytes", seconds(many, 9), make([]byte, 2*many)},
		{"value cut short", ms(many, 0, 0), make([]byte, many-1)},
		{"value two bytes too long", ms(many, 0, 0), make([]byte, many+2)},
		{"unknown trailing byte", ms(many, 0, 0), append(make([]byte, many), 2)},
		{"signalling NaNs of 4 bytes", ms(many, 0, 0xb), bytes.Repeat([]byte{0x7f, 0x80, 0, 1}, many)},
		{"more points than an hour has at one second", ms(4097, 0, 0), make([]byte, 4097)},
		{"nothing to gain", seconds(2, 0), make([]byte, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if packed, ok := pack.Append([]byte("x"), c.qualifier, c.value); ok || string(packed) != "x" {
				t.Errorf("got %x, %t, want 78, false", packed, ok)
			}
		})
	}
}

// anyValue draws values that are awkward, of each kind.
func anyValue() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64(),
		rapid.Map(rapid.Uint64(), math.Float64frombits),
		rapid.Map(rapid.Int64(), func(x int64) float64 { return float64(x) }),
		rapid.Map(rapid.IntRange(-100, 100), func(x int) float64 { return float64(x) }),
		rapid.Map(rapid.Int64Range(-1e6, 1e6), func(x int64) float64 { return float64(x) / 1000 }),
		rapid.SampledFrom([]float64{staleness, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0,
			1 << 62, 1 << 63, -1 << 63, math.MaxFloat64, math.SmallestNonzeroFloat64, 1<<53 + 2, 0.1 + 0.2}),
	)
}

func TestAppend_TakesWhatPromtsdWrites(t *testing.T) {
	kinds := []*rapid.Generator[float64]{
		rapid.Float64(),
		rapid.Map(rapid.IntRange(-1e4, 1e9), func(x int) float64 { return float64(x) }),
		rapid.Map(rapid.IntRange(-1e9, 1e9), func(x int) float64 { return float64(x) / 100 }),
		rapid.Map(rapid.Int64Range(0, 1<<40), func(x int64) float64 { return float64(x) * 4096 }),
	}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom(kinds).Draw(t, "kind")
		n := rapid.IntRange(20, 300).Draw(t, "points")
		values := rapid.SliceOfN(value, n, n).Draw(t, "values")
		if i := rapid.IntRange(0, 2*len(values)).Draw(t, "odd"); i < len(values) {
			values[i] = anyValue().Draw(t, "exception")
		}
		c := makeCell(anyTimes(t, len(values)), values)
		if !checkAppend(t, c) {
			t.Fatalf("not packed: %x, %x", c.qualifier, c.value)
		}
	})
}

func TestAppend_TakesWhatOpenTSDBWrites(t *testing.T) {
	float := func(v float64) ([]byte, byte) {
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(v)), 0xf
	}
	forms := []func(x int64) (value []byte, flags byte){
		func(x int64) ([]byte, byte) { return binary.BigEndian.AppendUint64(nil, uint64(x)), 7 },
		func(x int64) ([]byte, byte) { return []byte{byte(x)}, 0 },
		func(x int64) ([]byte, byte) { return float(float64(x)) },
		func(x int64) ([]byte, byte) { return float(float64(x%1e9) / 100) },
		func(x int64) ([]byte, byte) { return float(math.Sqrt(float64(x))) },
	}
	rapid.Check(t, func(t *rapid.T) {
		n, seconds := rapid.IntRange(30, 300).Draw(t, "points"), rapid.Bool().Draw(t, "seconds")
		form := rapid.SampledFrom(forms).Draw(t, "form")
		c := cell{points: n}
		for i := range n {
			value, flags := form(rapid.Int64().Draw(t, "number"))
			c.value = append(c.value, value...)
			if seconds {
				c.qualifier = binary.BigEndian.AppendUint16(c.qualifier, uint16(i*10)<<4|uint16(flags))
			} else {
				c.qualifier = mapping.AppendQualifier(c.qualifier, uint32(i*10_000), flags)
			}
		}
		c.value = append(c.value, rapid.SampledFrom([]string{"", "\x00", "\x01"}).Draw(t, "trailer")...)
		if !checkAppend(t, c) {
			t.Fatalf("not packed: %x, %x", c.qualifier, c.value)
		}
	})
}

func TestAppend_AnyValuesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 300).Draw(t, "points")
		values := rapid.SliceOfN(anyValue(), n, n).Draw(t, "values")
		checkAppend(t, makeCell(anyTimes(t, len(values)), values))
	})
}

// anyTimes draws the times of scrapes.
// Decimals that miss the nearest float64 by a few, among others, are packed as near decimals, and come back.
func TestAppend_NearDecimalsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ten := rapid.SampledFrom([]float64{10, 1000, 1e9}).Draw(t, "power of ten")
		decimal := rapid.Custom(func(t *rapid.T) float64 {
			v := float64(rapid.Int64Range(1, 1e12).Draw(t, "decimal")) / ten
			return math.Float64frombits(math.Float64bits(v) + uint64(rapid.Int64Range(-3, 3).Draw(t, "distance")))
		})
		n := rapid.IntRange(40, 300).Draw(t, "points")
		values := rapid.SliceOfN(decimal, n, n).Draw(t, "values")
		others := rapid.IntRange(0, n/50).Draw(t, "others")
		for range others {
			values[rapid.IntRange(0, n-1).Draw(t, "at")] = anyValue().Draw(t, "other")
		}
		c := makeCell(anyTimes(t, n), values)
		if packed, ok := pack.Append(nil, c.qualifier, c.value); !ok || packed[1]&32 == 0 {
			t.Fatalf("packed %t as %x, want scale 32 and a power", ok, packed)
		}
		checkAppend(t, c)
	})
}

func anyTimes(t *rapid.T, n int) []uint32 {
	step, jitter := rapid.Uint32Range(8, 10_000).Draw(t, "step"), rapid.Uint32Range(0, 7)
	times := make([]uint32, n)
	for i := range times {
		times[i] = uint32(i)*step + jitter.Draw(t, "jitter")
	}
	return times
}

// anyCell draws a cell that the schema allows, or that OpenTSDB may have left.
func anyCell(t *rapid.T) cell {
	n := rapid.IntRange(2, 100).Draw(t, "points")
	flag := rapid.SampledFrom([][]byte{{0}, {1}, {3}, {7}, {0xb}, {0xf}, {0, 1, 3, 7}, {0xb, 0xf}, {0, 0xf},
		{0, 1, 3, 7, 0xb, 0xf}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}).Draw(t, "flags")
	seconds := rapid.SampledFrom([]int{0, n, n, n / 2}).Draw(t, "seconds")
	number := rapid.SampledFrom([]*rapid.Generator[int64]{rapid.Int64(), rapid.Int64Range(-5, 5),
		rapid.Map(rapid.Int64Range(0, 9), func(x int64) int64 { return math.MaxInt64 - x })}).Draw(t, "integers")
	var c cell
	for i := range n {
		flags := rapid.SampledFrom(flag).Draw(t, "flag")
		switch flags {
		case 0xf:
			v := math.Float64bits(anyValue().Draw(t, "value"))
			c.value = binary.BigEndian.AppendUint64(c.value, v)
		case 0xb:
			v := rapid.OneOf(rapid.Uint32(), rapid.Map(rapid.Float32(), math.Float32bits)).Draw(t, "value")
			c.value = binary.BigEndian.AppendUint32(c.value, v)
		default:
			v := binary.BigEndian.AppendUint64(nil, uint64(number.Draw(t, "value")))
			c.value = append(c.value, v[7-flags&7:]...)
		}
		if i < seconds {
			offset := rapid.Uint16Range(0, 3839).Draw(t, "offset")
			c.qualifier = binary.BigEndian.AppendUint16(c.qualifier, offset<<4|uint16(flags))
		} else {
			offset := rapid.OneOf(rapid.Uint32Range(0, 1<<22-1), rapid.Just(uint32(i)*1000)).Draw(t, "offset")
			c.qualifier = binary.BigEndian.AppendUint32(c.qualifier, 0xf0000000|offset<<6|uint32(flags))
		}
	}
	c.value = append(c.value, rapid.SampledFrom([]string{"", "\x00", "\x01", "\x02"}).Draw(t, "trailer")...)
	return c
}

func TestAppend_AnyLegalCellComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkAppend(t, anyCell(t)) })
}

func TestAppend_AnyBytesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOf(rapid.Byte())
		checkAppend(t, cell{qualifier: bytes.Draw(t, "qualifier"), value: bytes.Draw(t, "value")})
	})
}

func TestAppend_MeasuredSeriesComeBack(t *testing.T) {
	for i, s := range makeSeries(parts * targets) {
		if i%7 != 0 {
			continue
		}
		for _, points := range []int{240, 20} {
			if !checkAppend(t, s.cell(points)) {
				t.Errorf("%s of %d points is not packed", s.shape, points)
			}
		}
	}
}

func TestExpand_RefusesDamage(t *testing.T) {
	for i, s := range makeSeries(parts * targets) {
		if i%107 != 0 {
			continue
		}
		c := s.cell(60)
		packed, _ := pack.Append(nil, c.qualifier, c.value)
		for cut := range packed {
			if out, _, err := pack.Expand([]byte("x"), packed[:cut]); !errors.Is(err, mapping.ErrCorrupt) || string(out) != "x" {
				t.Fatalf("%s: first %d of %x: got %x, error %v, want an error that is ErrCorrupt", s.shape, cut, packed, out, err)
			}
		}
		if out, _, err := pack.Expand(nil, append(packed, 0)); !errors.Is(err, mapping.ErrCorrupt) {
			t.Fatalf("%s: %x and a byte: got %x, error %v, want an error that is ErrCorrupt", s.shape, packed, out, err)
		}
	}
}

func TestExpand_RefusesWhatNoCellHas(t *testing.T) {
	for _, c := range []struct{ name, packed string }{
		{"no bytes", ""},
		{"unknown head", "\x41\x00\x02\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"unknown trailer", "\x03\x00\x02\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"unknown kind of flags", "\x19\x00\x02\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"unknown scale", "\x01\x11\x02\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"integers that are near", "\x01\x20\x02\x02\x00\x02\x00\x02\x00\x00\x00\x02\x00\x00\x00"},
		{"bits that are near", "\x01\x30\x02\x02\x00\x02\x00\x02\x00\x00\x00\x02\x00\x00\x00"},
		{"no distances", "\x01\x21\x02\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"one point", "\x01\x00\x01\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"too many points", "\x01\x00\x81\x20\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"unknown flags", "\x09\x00\x02\x02\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"unknown column", "\x01\x00\x02\x82\x00\x02\x00\x02\x00\x00\x00"},
		{"unknown width", "\x01\x00\x02\x02\x3a\x02\x00\x02\x00\x00\x00"},
		{"radix 1", "\x01\x00\x02\x02\x00\x02\x00\x42\x00\x01\x00\x00"},
		{"both unary and a radix", "\x01\x00\x02\x02\x00\x02\x00\x4a\x00\x02\x00\x00\x01"},
		{"time beyond a qualifier", "\x01\x00\x02\x02\x00\x02\xfe\xff\xff\x03\x02\x00\x00\x00"},
		{"seconds that are milliseconds", "\x05\x00\x02\x02\x00\x02\xfe\x3b\x02\x00\x00\x00"},
		{"exception beyond the points", "\x21\x00\x02\x01\x02AAAAAAAA\x02\x00\x02\x00\x02\x00\x00\x00"},
		{"patch beyond the points", "\x01\x00\x02\x12\x00\x02\x00\x01\x01\x00\x02\x00\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out, _, err := pack.Expand(nil, []byte(c.packed)); !errors.Is(err, mapping.ErrCorrupt) || len(out) > 0 {
				t.Errorf("got %x, error %v, want an error that is ErrCorrupt", out, err)
			}
		})
	}
	if _, _, err := pack.Expand(nil, []byte("\x01\x00\x02\x02\x00\x02\x00\x02\x00\x00\x00")); err != nil {
		t.Errorf("the cell that the cases spoil: %v", err)
	}
}

func TestAppend_Concurrently(t *testing.T) {
	all := makeSeries(parts * targets)
	errs := make([]error, 4)
	var group sync.WaitGroup
	for worker := range errs {
		group.Go(func() {
			for i := worker; i < len(all); i += 17 {
				c := all[i].cell(240)
				packed, _ := pack.Append(nil, c.qualifier, c.value)
				out, _, err := pack.Expand(nil, packed)
				if want := append(c.qualifier, c.value...); err != nil || !bytes.Equal(out, want) {
					errs[worker] = fmt.Errorf("got %x, error %w, want %x", out, err, want)
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
