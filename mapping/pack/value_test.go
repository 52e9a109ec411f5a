package pack

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

// Were the two of different minds, every flag would cost a byte.
func TestFloatFlags_AreThoseOfTheMapping(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, v float64) {
		bytes, want := mapping.AppendValue(nil, v)
		if got := floatFlags(v); got != want {
			t.Fatalf("flags of %v: got %#x, want %#x", v, got, want)
		}
		var padded [8]byte
		copy(padded[:], bytes)
		if got, want := floatRaw(v, want), binary.BigEndian.Uint64(padded[:]); got != want {
			t.Fatalf("bytes of %v: got %x, want %x", v, got, want)
		}
	}
	for _, v := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64,
		math.MaxFloat32, math.SmallestNonzeroFloat64, 0.5, 0.1, math.Float64frombits(0x7ff0000000000002)} {
		check(t, v)
	}
	for power := range 64 {
		for _, offset := range []float64{-1, -0.5, 0, 0.5, 1} {
			check(t, math.Ldexp(1, power)+offset)
			check(t, -math.Ldexp(1, power)+offset)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, math.Float64frombits(rapid.Uint64().Draw(t, "bits")))
		check(t, float64(rapid.Int64().Draw(t, "integer")))
		check(t, float64(rapid.Float32().Draw(t, "short")))
	})
}
