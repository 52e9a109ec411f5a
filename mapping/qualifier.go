package mapping

import (
	"encoding/binary"
	"fmt"
)

// A point's qualifier is the time since the row's base time, and flags that tell the form of its value. There are two
// forms, told apart by the first nibble:
//
//	seconds, 2 bytes:       | offset in s: 12 bits | flags: 4 bits |                  offset 0..3839
//	milliseconds, 4 bytes:  | 1111 | offset in ms: 22 bits | 00 | flags: 4 bits |     offset 0..4194303
//
//	flags:  | float: 1 bit | number of value bytes - 1: 3 bits |
//
// The two bits before the flags of the milliseconds form are reserved: written 0, not read. Offsets of an hour and more
// are no error to OpenTSDB: they count from the base time.

// The flags of a qualifier.
const (
	FlagFloat      byte = 0x8 // the value is a floating-point number, not an integer
	FlagLengthMask byte = 0x7 // the number of bytes of the value, less 1
)

const (
	msForm       = 0xf0000000
	msOffsetMask = 0x0fffffc0
	msShift      = 6
	flagsMask    = FlagFloat | FlagLengthMask

	secondsWidth = 2
	msWidth      = 4
)

// AppendQualifier appends the milliseconds form for a point offsetMs milliseconds after the base time; offsetMs must be
// below HourMs.
func AppendQualifier(dst []byte, offsetMs uint32, flags byte) []byte {
	return binary.BigEndian.AppendUint32(dst, msForm|offsetMs<<msShift&msOffsetMask|uint32(flags&flagsMask))
}

// ParseQualifier reads the first qualifier of b, in either form: the offset in milliseconds, the flags, and the
// qualifier's width in bytes. The error, about bytes that are missing, wraps ErrCorrupt.
func ParseQualifier(b []byte) (offsetMs uint32, flags byte, width int, err error) {
	switch {
	case len(b) >= msWidth && isMs(b[0]):
		q := binary.BigEndian.Uint32(b)
		return q & msOffsetMask >> msShift, byte(q) & flagsMask, msWidth, nil
	case len(b) >= secondsWidth && !isMs(b[0]):
		q := binary.BigEndian.Uint16(b)
		return uint32(q>>4) * 1000, byte(q) & flagsMask, secondsWidth, nil
	default:
		return 0, 0, 0, fmt.Errorf("%w: qualifier %x ends early", ErrCorrupt, clip(b))
	}
}

// isMs tells from the first byte of a qualifier whether it has the milliseconds form.
func isMs(first byte) bool { return first >= 0xf0 }
