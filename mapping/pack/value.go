package pack

import (
	"math"
	"math/bits"

	"github.com/promtsd/promtsd/mapping"
)

// The flags of the six encodings of a value.
const (
	int8Flags    = 0
	int16Flags   = 1
	int32Flags   = 3
	int64Flags   = 7
	float32Flags = mapping.FlagFloat | 3
	float64Flags = mapping.FlagFloat | 7
)

// deriveFlags fills flags with those that the values of the column have of themselves: those of mapping.AppendValue,
// and for integers beyond 2^53, which it is not asked for, those of 8 bytes.
func (s *scratch) deriveFlags(flags []byte, sc scale) {
	if sc != integers {
		for i, v := range s.floats[:len(flags)] {
			flags[i] = floatFlags(v)
		}
		return
	}
	for i, x := range s.number[:len(flags)] {
		f := shortFlags(x)
		if f == int64Flags {
			f = longFlags(x)
		}
		flags[i] = f
	}
	for _, o := range s.exceptions {
		flags[o.at] = floatFlags(math.Float64frombits(o.bits))
	}
}

// floatFlags are those of any value.
func floatFlags(v float64) byte {
	// The bounds are exact in a float64; outside of them the conversion to an integer is not defined.
	if v >= math.MinInt64 && v < 1<<63 {
		// -0 is no integer: its sign would be lost.
		if x := int64(v); math.Float64bits(float64(x)) == math.Float64bits(v) {
			if f := shortFlags(x); f != int64Flags {
				return f
			}
			return longFlags(x)
		}
	}
	if float64(float32(v)) == v {
		return float32Flags
	}
	return float64Flags
}

// shortFlags are those of an integer: 1 byte for 7 bits and the sign, 2 for 15, 4 for 31, otherwise 8.
func shortFlags(x int64) byte {
	length := uint(bits.Len64(uint64(x ^ x>>63)))
	return 1<<bits.Len(length/8) - 1
}

// longFlags are those of an integer of more than 31 bits, which may be shorter as a float32.
func longFlags(x int64) byte {
	const float32Bits = 24
	magnitude := uint64(max(x, -x))
	if bits.Len64(magnitude)-bits.TrailingZeros64(magnitude) <= float32Bits {
		return float32Flags
	}
	return int64Flags
}

// fillRaw fills s.raw with the bytes of the values in the encodings that s.flags say.
func (s *scratch) fillRaw(n int, sc scale) {
	raw, flags := s.raw[:n], s.flags[:n]
	if sc != integers {
		for i, v := range s.floats[:n] {
			raw[i] = floatRaw(v, flags[i])
		}
		return
	}
	for i, x := range s.number[:n] {
		f := flags[i]
		if f&mapping.FlagFloat != 0 {
			raw[i] = floatRaw(float64(x), f)
			continue
		}
		raw[i] = uint64(x) << (56 - 8*f)
	}
	for _, o := range s.exceptions {
		raw[o.at] = floatRaw(math.Float64frombits(o.bits), flags[o.at])
	}
}

// floatRaw has the bytes of a value.
func floatRaw(v float64, flags byte) uint64 {
	switch flags {
	case float64Flags:
		return math.Float64bits(v)
	case float32Flags:
		return uint64(math.Float32bits(float32(v))) << 32
	default:
		return uint64(int64(v)) << (56 - 8*flags)
	}
}

// rawInt is the integer whose bytes raw has.
func rawInt(raw uint64, flags byte) int64 {
	return int64(raw) >> (56 - 8*(flags&mapping.FlagLengthMask))
}

// rawFloat is the value whose bytes raw has, rounded if it is an integer beyond 2^53.
func rawFloat(raw uint64, flags byte) float64 {
	switch flags {
	case float64Flags:
		return math.Float64frombits(raw)
	case float32Flags:
		return float64(math.Float32frombits(uint32(raw >> 32)))
	default:
		return float64(rawInt(raw, flags))
	}
}
