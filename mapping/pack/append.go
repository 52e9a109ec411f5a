package pack

import (
	"bytes"
	"encoding/binary"
)

// Append appends the packed encoding of a cell to dst. It is not ok, and dst comes back as it was, if the cell is none
// of several points, if it is of a kind that is not packed (more than 4096 points, points in seconds beside points in
// milliseconds, bytes that no writer of the schema leaves there), or if it would not become smaller. What is ok was
// expanded and compared: Expand gives the same bytes.
//
// It may be called concurrently, and allocates only to grow dst.
func Append(dst, qualifier, value []byte) (packed []byte, ok bool) {
	s := pool.Get().(*scratch)
	defer pool.Put(s)
	n, seconds, end, ok := s.split(qualifier, value)
	if !ok {
		return dst, false
	}
	packed = s.append(dst, n, seconds, end)
	cell := packed[len(dst):]
	if len(cell) >= len(qualifier)+len(value) || !s.proves(cell, qualifier, value) {
		return packed[:len(dst)], false
	}
	return packed, true
}

// append appends the packed encoding of the points in s.times, s.flags and s.raw.
func (s *scratch) append(dst []byte, n int, seconds bool, end trailer) []byte {
	times, numbers := s.times[:n], s.number[:n]
	sc := s.fillNumbers(n)
	flags := s.flagsKind(n, sc)

	head := byte(end) | byte(flags)<<flagsShift
	if seconds {
		head |= secondsFlag
	}
	if len(s.exceptions) > 0 {
		head |= exceptionsFlag
	}
	dst = append(dst, head, byte(sc))
	dst = binary.AppendUvarint(dst, uint64(n))
	switch flags {
	case flagsSame:
		dst = append(dst, s.flags[0])
	case flagsListed:
		dst = append(dst, s.flags[:n]...)
	}
	if len(s.exceptions) > 0 {
		dst = s.appendOdd(dst)
	}
	dst = s.appendColumn(dst, times[0], s.planColumn(times, line))
	dst = s.appendColumn(dst, numbers[0], s.planColumn(numbers, flat))
	if sc&nearDecimal != 0 {
		dst = s.appendColumn(dst, s.distance[0], s.planColumn(s.distance[:n], flat))
	}
	return dst
}

// flagsKind finds out how little of the flags must be written.
func (s *scratch) flagsKind(n int, sc scale) flagsKind {
	flags, derived := s.flags[:n], s.derived[:n]
	var differ byte
	for _, f := range flags {
		differ |= f ^ flags[0]
	}
	if differ == 0 {
		return flagsSame
	}
	if s.deriveFlags(derived, sc); bytes.Equal(derived, flags) {
		return flagsFollow
	}
	return flagsListed
}

func (s *scratch) appendOdd(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s.exceptions)))
	next := 0
	for _, o := range s.exceptions {
		dst = binary.AppendUvarint(dst, uint64(o.at-next))
		dst = binary.BigEndian.AppendUint64(dst, o.bits)
		next = o.at + 1
	}
	return dst
}

// proves tells whether packed expands to the cell.
func (s *scratch) proves(packed, qualifier, value []byte) bool {
	out, n, err := s.expand(s.proof[:0], packed)
	s.proof = out
	return err == nil && bytes.Equal(out[:n], qualifier) && bytes.Equal(out[n:], value)
}
