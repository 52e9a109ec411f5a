package pack

import (
	"encoding/binary"
	"fmt"
)

// Expand appends the qualifier and then the value of the cell that Append packed, and says how long the qualifier is.
// The error, about bytes that hold no packed cell, wraps mapping.ErrCorrupt; dst then comes back as it was.
//
// It may be called concurrently, and allocates only to grow dst: never by more than 12 bytes for each of 4096 points
// and 8, and not if dst has the room of 12 bytes a point and 8.
func Expand(dst, packed []byte) (out []byte, qualifier int, err error) {
	s := pool.Get().(*scratch)
	defer pool.Put(s)
	return s.expand(dst, packed)
}

func (s *scratch) expand(dst, packed []byte) (out []byte, qualifier int, err error) {
	r := reader{rest: packed}
	head, sc := r.byte(), scale(r.byte())
	n := r.length(maxPoints)
	end, flags := trailer(head&trailerMask), flagsKind(head&flagsMask>>flagsShift)
	if head&^knownHead != 0 || end > trailerOne || flags > flagsListed || !sc.known() || n < 2 {
		r.fail("a head of unknown encoding")
		return dst, 0, r.err
	}
	s.parseFlags(s.flags[:n], flags, &r)
	s.exceptions = s.exceptions[:0]
	if head&exceptionsFlag != 0 {
		s.parseOdd(n, &r)
	}
	seconds := head&secondsFlag != 0
	s.parseColumn(s.times[:n], &r)
	s.parseColumn(s.number[:n], &r)
	if sc&nearDecimal != 0 {
		s.parseColumn(s.distance[:n], &r)
	}
	switch {
	case len(r.rest) > 0:
		r.fail("more bytes than its points need")
	case !validTimes(s.times[:n], seconds):
		r.fail("a time that no qualifier can hold")
	}
	if r.err != nil {
		return dst, 0, r.err
	}
	if sc != integers {
		s.fillFloats(n, sc)
	}
	if flags == flagsFollow {
		s.deriveFlags(s.flags[:n], sc)
	}
	s.fillRaw(n, sc)
	out, qualifier = s.join(dst, n, seconds, end)
	return out, qualifier, nil
}

func (s *scratch) parseFlags(flags []byte, kind flagsKind, r *reader) {
	switch kind {
	case flagsSame:
		flags[0] = r.byte()
		for n := 1; n < len(flags); n *= 2 {
			copy(flags[n:], flags[:n])
		}
		flags = flags[:1]
	case flagsListed:
		copy(flags, r.take(len(flags)))
	case flagsFollow:
		return
	}
	if f, ok := validFlags(flags); !ok {
		r.fail(fmt.Sprintf("unknown flags %#x", f))
	}
}

func (s *scratch) parseOdd(n int, r *reader) {
	next := 0
	for range r.length(n) {
		at, bits := next+r.length(n), r.take(8)
		if at >= n || r.err != nil {
			r.fail("a value beyond the last point")
			return
		}
		s.exceptions = append(s.exceptions, exception{at, binary.BigEndian.Uint64(bits)})
		next = at + 1
	}
}
