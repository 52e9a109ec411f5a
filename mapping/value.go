package mapping

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A value is an integer in two's complement on 1, 2, 4 or 8 bytes, or an IEEE 754 number on 4 or 8 bytes. Its length
// and which of the two it is stand in the flags of its qualifier.

// The flags of the six forms.
const (
	flagInt8    = 0
	flagInt16   = 1
	flagInt32   = 3
	flagInt64   = 7
	flagFloat32 = FlagFloat | 3
	flagFloat64 = FlagFloat | 7
)

const negativeZero = 1 << 63

// AppendValue appends v in the smallest form that is exact, an integer if a float is no smaller, and returns the flags
// for its qualifier. ParseValue gives back the same bits: -0 is a float, and a NaN has always 8 bytes, because shorter
// ones would lose the payload, such as that of the staleness marker.
func AppendValue(dst []byte, v float64) (out []byte, flags byte) {
	// The bounds are exact in a float64; outside of them the conversion to an integer is not defined.
	if v >= math.MinInt64 && v < 1<<63 {
		i := int64(v)
		if float64(i) == v && math.Float64bits(v) != negativeZero {
			switch {
			case int64(int8(i)) == i:
				return append(dst, byte(i)), flagInt8
			case int64(int16(i)) == i:
				return append(dst, byte(i>>8), byte(i)), flagInt16
			case int64(int32(i)) == i:
				return binary.BigEndian.AppendUint32(dst, uint32(i)), flagInt32
			}
			if f := float32(v); float64(f) == v {
				return binary.BigEndian.AppendUint32(dst, math.Float32bits(f)), flagFloat32
			}
			return binary.BigEndian.AppendUint64(dst, uint64(i)), flagInt64
		}
	}
	if f := float32(v); float64(f) == v {
		return binary.BigEndian.AppendUint32(dst, math.Float32bits(f)), flagFloat32
	}
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v)), flagFloat64
}

// ParseValue reads a value that has all of b. Of the flags it looks at FlagFloat only: the length is that of b. An
// integer beyond 2^53 becomes the nearest float64. The error, about a length that no form has, wraps ErrCorrupt.
func ParseValue(b []byte, flags byte) (float64, error) {
	if flags&FlagFloat != 0 {
		switch len(b) {
		case 4:
			return float64(math.Float32frombits(binary.BigEndian.Uint32(b))), nil
		case 8:
			return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
		}
		return 0, fmt.Errorf("%w: floating-point value %x has %d bytes, want 4 or 8", ErrCorrupt, clip(b), len(b))
	}
	switch len(b) {
	case 1:
		return float64(int8(b[0])), nil
	case 2:
		return float64(int16(binary.BigEndian.Uint16(b))), nil
	case 4:
		return float64(int32(binary.BigEndian.Uint32(b))), nil
	case 8:
		return float64(int64(binary.BigEndian.Uint64(b))), nil
	}
	return 0, fmt.Errorf("%w: integer value %x has %d bytes, want 1, 2, 4 or 8", ErrCorrupt, clip(b), len(b))
}
