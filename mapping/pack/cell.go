package pack

import (
	"encoding/binary"
	"math"

	"github.com/promtsd/promtsd/mapping"
)

// The two encodings of a qualifier; package mapping draws them.
const (
	msWidth, secondsWidth = 4, 2

	msForm       = 0xf // the first nibble
	msShift      = 6
	secondsShift = 4
	maxMs        = 1<<22 - 1
	maxSeconds   = msForm<<8 - 1 // beyond, the first nibble is that of the other encoding
	pointFlags   = mapping.FlagFloat | mapping.FlagLengthMask
)

// split takes a cell apart into s.times, s.flags and s.raw, and tells the number of points.
func (s *scratch) split(qualifier, value []byte) (n int, seconds bool, end trailer, ok bool) {
	if len(qualifier) < 2*secondsWidth {
		return 0, false, 0, false
	}
	seconds = qualifier[0] < msForm<<4
	if seconds {
		n, ok = s.splitSeconds(qualifier)
	} else {
		n, ok = s.splitMs(qualifier)
	}
	if !ok || n < 2 || len(value) > n*maxValue+1 {
		return 0, false, 0, false
	}
	clear(s.bytes[copy(s.bytes[:], value):][:slack-1])
	at := 0
	for i, f := range s.flags[:n] {
		if at >= len(value) {
			return 0, false, 0, false
		}
		length := f&mapping.FlagLengthMask + 1
		s.raw[i] = binary.BigEndian.Uint64(s.bytes[at:]) & (math.MaxUint64 << (64 - 8*length))
		at += int(length)
	}
	switch {
	case at == len(value):
		return n, seconds, trailerNone, true
	case at+1 == len(value) && value[at] <= 1:
		return n, seconds, trailerZero + trailer(value[at]), true
	default:
		return 0, false, 0, false
	}
}

func (s *scratch) splitMs(qualifier []byte) (n int, ok bool) {
	n = len(qualifier) / msWidth
	if n*msWidth != len(qualifier) || n > maxPoints {
		return 0, false
	}
	times, flags := s.times[:n], s.flags[:n]
	const must, may = msForm << 28, msForm<<28 | maxMs<<msShift | uint32(pointFlags)
	all, some := uint32(math.MaxUint32), uint32(0)
	for i := range times {
		q := binary.BigEndian.Uint32(qualifier[i*msWidth:])
		all &= q
		some |= q
		times[i] = int64(q >> msShift & maxMs)
		flags[i] = byte(q) & pointFlags
	}
	if all&must != must || some&^may != 0 {
		return 0, false
	}
	_, ok = validFlags(flags)
	return n, ok
}

func (s *scratch) splitSeconds(qualifier []byte) (n int, ok bool) {
	n = len(qualifier) / secondsWidth
	if n*secondsWidth != len(qualifier) || n > maxPoints {
		return 0, false
	}
	times, flags := s.times[:n], s.flags[:n]
	for i := range times {
		q := binary.BigEndian.Uint16(qualifier[i*secondsWidth:])
		times[i] = int64(q >> secondsShift)
		flags[i] = byte(q) & pointFlags
	}
	_, ok = validFlags(flags)
	return n, ok && validTimes(times, true)
}

// validFlags tells whether all are flags of the six encodings, or one that is not.
func validFlags(flags []byte) (unknown byte, ok bool) {
	const known = 1<<int8Flags | 1<<int16Flags | 1<<int32Flags | 1<<int64Flags | 1<<float32Flags | 1<<float64Flags
	for _, f := range flags {
		if known>>f&1 == 0 {
			return f, false
		}
	}
	return 0, true
}

// validTimes tells whether qualifiers can hold all times.
func validTimes(times []int64, seconds bool) bool {
	latest := uint64(0)
	for _, t := range times {
		latest = max(latest, uint64(t))
	}
	return latest <= maxMs && (!seconds || latest <= maxSeconds)
}

// join appends the cell of the n points that are in s.times, s.flags and s.raw, and tells the length of its qualifier.
func (s *scratch) join(dst []byte, n int, seconds bool, end trailer) (out []byte, qualifier int) {
	qualifier = n * msWidth
	if seconds {
		qualifier = n * secondsWidth
	}
	out = grow(dst, qualifier+n*maxValue+slack)
	q, v := out[len(dst):][:qualifier], out[len(dst)+qualifier:]
	flags := s.flags[:n]
	times, raw := s.times[:len(flags)], s.raw[:len(flags)]
	at := 0
	if seconds {
		for i, f := range flags {
			// The bytes beyond the value are overwritten by the next.
			binary.BigEndian.PutUint64(v[at:], raw[i])
			binary.BigEndian.PutUint16(q[i*secondsWidth:], uint16(times[i])<<secondsShift|uint16(f))
			at += int(f&mapping.FlagLengthMask) + 1
		}
	} else {
		for i, f := range flags {
			binary.BigEndian.PutUint64(v[at:], raw[i])
			binary.BigEndian.PutUint32(q[i*msWidth:], msForm<<28|uint32(times[i])<<msShift|uint32(f))
			at += int(f&mapping.FlagLengthMask) + 1
		}
	}
	if end != trailerNone {
		v[at] = byte(end - trailerZero)
		at++
	}
	return out[:len(dst)+qualifier+at], qualifier
}
