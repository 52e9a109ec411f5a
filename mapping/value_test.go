package mapping_test

import (
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

const staleMarker = 0x7ff0000000000002

func TestAppendValue_TakesTheSmallestExactForm(t *testing.T) {
	for _, c := range []struct {
		v     float64
		flags byte
		want  string
	}{
		{0, 0x0, "00"},
		{-1, 0x0, "ff"},
		{127, 0x0, "7f"},
		{128, 0x1, "0080"},
		{-128, 0x0, "80"},
		{-129, 0x1, "ff7f"},
		{32768, 0x3, "00008000"},
		{-32769, 0x3, "ffff7fff"},
		{math.MaxInt32, 0x3, "7fffffff"},
		{math.MinInt32, 0x3, "80000000"},
		{math.MaxInt32 + 1, 0xb, "4f000000"}, // 2^31 is exact on 4 bytes of float, and not on 4 of integer
		{math.MaxInt32 + 2, 0x7, "0000000080000001"},
		{1 << 53, 0xb, "5a000000"},
		{1<<53 - 1, 0x7, "001fffffffffffff"},
		{1 << 62, 0xb, "5e800000"},
		{-1 << 63, 0xb, "df000000"},
		{1 << 63, 0xb, "5f000000"},
		{1<<63 - 1024, 0x7, "7ffffffffffffc00"},
		{1e300, 0xf, "7e37e43c8800759c"},
		{0.5, 0xb, "3f000000"},
		{0.1, 0xf, "3fb999999999999a"},
		{math.Copysign(0, -1), 0xb, "80000000"},
		{math.SmallestNonzeroFloat32, 0xb, "00000001"},
		{math.SmallestNonzeroFloat64, 0xf, "0000000000000001"},
		{math.MaxFloat32, 0xb, "7f7fffff"},
		{math.MaxFloat64, 0xf, "7fefffffffffffff"},
		{math.Inf(1), 0xb, "7f800000"},
		{math.Inf(-1), 0xb, "ff800000"},
		{math.NaN(), 0xf, "7ff8000000000001"},
		{math.Float64frombits(staleMarker), 0xf, "7ff0000000000002"},
		{math.Float64frombits(0xfff8000000000000), 0xf, "fff8000000000000"},
	} {
		got, flags := mapping.AppendValue([]byte{0xaa}, c.v)
		if hex.EncodeToString(got) != "aa"+c.want || flags != c.flags {
			t.Errorf("value %v: got %x, flags %#x, want %s, %#x", c.v, got[1:], flags, c.want, c.flags)
		}
	}
}

// drawValue draws values of all forms, and any bits at all.
func drawValue(t *rapid.T) float64 {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.Int64().Draw(t, "integer")) }),
		rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.Int8().Draw(t, "small integer")) }),
		rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.Float32().Draw(t, "float32")) }),
		rapid.Custom(func(t *rapid.T) float64 { return math.Float64frombits(rapid.Uint64().Draw(t, "bits")) }),
		rapid.SampledFrom([]float64{
			0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(staleMarker),
			1 << 53, 1<<53 + 2, 1 << 63, -1 << 63,
		}),
	).Draw(t, "value")
}

func TestAppendValue_ReadsBackBitForBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawValue(t)
		b, flags := mapping.AppendValue(nil, want)
		if n := int(flags&mapping.FlagLengthMask) + 1; n != len(b) {
			t.Fatalf("value %v: flags %#x say %d bytes, there are %d", want, flags, n, len(b))
		}
		got, err := mapping.ParseValue(b, flags)
		if err != nil || math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("value %v (%#x): got %v (%#x), %v", want, math.Float64bits(want), got, math.Float64bits(got), err)
		}
	})
}

func TestAppendValue_NoSmallerFormIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t)
		b, flags := mapping.AppendValue(nil, v)
		for _, form := range []struct {
			bytes int
			float bool
			exact bool
		}{
			{1, false, float64(int8(clamp(v))) == v},
			{2, false, float64(int16(clamp(v))) == v},
			{4, false, float64(int32(clamp(v))) == v},
			{4, true, float64(float32(v)) == v},
		} {
			exact := form.exact && (form.float || math.Float64bits(v) != math.Float64bits(math.Copysign(0, -1)))
			if exact && (len(b) > form.bytes || len(b) == form.bytes && flags&mapping.FlagFloat != 0 && !form.float) {
				t.Fatalf("value %v has %d bytes, flags %#x, and is exact on %d (float: %t)",
					v, len(b), flags, form.bytes, form.float)
			}
		}
	})
}

// clamp keeps the conversion to an integer defined.
func clamp(v float64) int64 {
	if v > -1<<40 && v < 1<<40 {
		return int64(v)
	}
	return 1 << 50
}

func TestParseValue_OtherLengthsAreCorrupt(t *testing.T) {
	for n := range 12 {
		for _, form := range []struct {
			flags byte
			ok    bool
		}{
			{0, n == 1 || n == 2 || n == 4 || n == 8},
			{mapping.FlagFloat, n == 4 || n == 8},
		} {
			_, err := mapping.ParseValue(make([]byte, n), form.flags)
			if form.ok != (err == nil) || !form.ok && !errors.Is(err, mapping.ErrCorrupt) {
				t.Errorf("%d bytes with flags %#x: got %v, want ok %t or ErrCorrupt", n, form.flags, err, form.ok)
			}
		}
	}
}
