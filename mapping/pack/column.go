package pack

import "encoding/binary"

// shape is how a column is written. Of numbers x[0], x[1] .. it keeps the first, and distances in units of what divides
// them all: y[i] = (x[i] - x[0]) / unit. These are a residual r[i] beside what is expected of them:
//
//	flat           y[i] = base + r[i]
//	line           y[i] = base + r[i] + i*slope>>16
//	delta          y[i] = base + r[i] + y[i-1]
//	deltaOfDelta   y[i] = base + r[i] + 2*y[i-1] - y[i-2]    with y[-1] = -slope
//
// All of it is modulo 2^64, so that any numbers do. The m = n-1 residuals have width bits each. What they have above
// stands behind them, in unary or as digits of a radix (see groups), or, of the few that have too much for that, in a
// list of patches: their count, and for each the distance from the place after the one before, and the upper bits,
// signed:
//
//	 1       1       1       1..10  1..10   1..10  1..10  ..        ceil(m*width/8)  ..
//	+-------+-------+-------+------+-------+------+------+---------+----------------+------------+
//	| order | width | radix | base | slope | unit | x[0] | patches | lower bits     | upper bits |
//	+-------+-------+-------+------+-------+------+------+---------+----------------+------------+
//
//	order:  | 0 | radix | unit | patches | unary | folded | order: 2 bits |
//
// The second byte is the width. Slope is there for line and deltaOfDelta only; radix, unit and patches where their bits
// of the first byte are set; upper bits where that of the radix is set, or that of unary. Signed numbers are zigzag
// coded, and so are residuals if they are folded. Bits are filled in from the lowest of the first byte. A unary number
// is as many 0 bits and a 1 bit.
type shape struct {
	order  order
	folded bool
	unary  bool
	width  uint   // maxWidth or less, or wordWidth
	radix  uint64 // 0, or 2 to maxRadix
	base   int64
	slope  int64
	unit   uint64
}

// order is what of a column is about constant.
type order byte

const (
	flat         order = iota // the numbers
	line                      // their distances from a straight line
	delta                     // their steps
	deltaOfDelta              // the steps of their steps
)

// The first byte of a column.
const (
	orderMask   = 0x03
	foldedFlag  = 0x04
	unaryFlag   = 0x08
	patchesFlag = 0x10
	unitFlag    = 0x20
	radixFlag   = 0x40
	knownColumn = orderMask | foldedFlag | unaryFlag | patchesFlag | unitFlag | radixFlag
)

const (
	lineShift = 16 // fractional bits of a line's slope
	maxUnary  = 23 // larger numbers are not written in unary
)

// patch is what a residual has above its width.
type patch struct {
	at   int
	high int64
}

func (o order) sloped() bool { return o == line || o == deltaOfDelta }

// appendColumn appends the column that begins with first and goes on as p says.
func (s *scratch) appendColumn(dst []byte, first int64, p plan) []byte {
	residuals := s.fillResiduals(p)
	head := byte(p.order)
	if p.folded {
		head |= foldedFlag
	}
	if p.unary {
		head |= unaryFlag
	}
	if len(s.patches) > 0 {
		head |= patchesFlag
	}
	if p.unit != 1 {
		head |= unitFlag
	}
	if p.radix != 0 {
		head |= radixFlag
	}
	dst = append(dst, head, byte(p.width))
	if p.radix != 0 {
		dst = append(dst, byte(p.radix))
	}
	dst = binary.AppendUvarint(dst, fold(p.base))
	if p.order.sloped() {
		dst = binary.AppendUvarint(dst, fold(p.slope))
	}
	if p.unit != 1 {
		dst = binary.AppendUvarint(dst, p.unit)
	}
	dst = binary.AppendUvarint(dst, fold(first))
	if len(s.patches) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(s.patches)))
		next := 0
		for _, patch := range s.patches {
			dst = binary.AppendUvarint(dst, uint64(patch.at-next))
			dst = binary.AppendUvarint(dst, fold(patch.high))
			next = patch.at + 1
		}
	}
	dst = appendBits(dst, residuals, p.width)
	switch {
	case p.unary:
		dst = appendUnary(dst, residuals, p.width)
	case p.radix != 0:
		dst = appendDigits(dst, residuals, p.width, p.radix, s.groups[:])
	}
	return dst
}

// fillResiduals fills s.residual, and s.patches with what of them is listed apart.
func (s *scratch) fillResiduals(p plan) []uint64 {
	residuals := s.residual[:len(p.steps)]
	s.patches = s.patches[:0]
	highest := uint64(0)
	switch {
	case p.unary:
		highest = maxUnary
	case p.radix != 0:
		highest = p.radix - 1
	}
	for i, d := range p.steps {
		d -= p.base
		if p.folded {
			d = int64(fold(d))
		}
		residuals[i] = uint64(d)
		if high := d >> p.width; uint64(high) > highest && p.width < wordWidth {
			s.patches = append(s.patches, patch{i, high})
			residuals[i] &= 1<<p.width - 1
		}
	}
	return residuals
}

// parseColumn reads a column into numbers, of which there are two or more.
func (s *scratch) parseColumn(numbers []int64, r *reader) {
	head := r.byte()
	sh := shape{
		order:  order(head & orderMask),
		folded: head&foldedFlag != 0,
		unary:  head&unaryFlag != 0,
		width:  uint(r.byte()),
		unit:   1,
	}
	if head&radixFlag != 0 {
		sh.radix = uint64(r.byte())
	}
	sh.base = unfold(r.uvarint())
	if head&^knownColumn != 0 || sh.width > maxWidth && (sh.width != wordWidth || sh.unary || sh.radix != 0) ||
		head&radixFlag != 0 && (sh.radix < 2 || sh.unary) {
		r.fail("a column of unknown encoding")
		return
	}
	if sh.order.sloped() {
		sh.slope = unfold(r.uvarint())
	}
	if head&unitFlag != 0 {
		sh.unit = r.uvarint()
	}
	numbers[0] = unfold(r.uvarint())
	residuals := s.residual[:len(numbers)-1]
	s.patches = s.patches[:0]
	if head&patchesFlag != 0 {
		s.parsePatches(len(residuals), r)
	}
	s.parseResiduals(residuals, sh, r)
	if r.err == nil {
		sh.restore(numbers, residuals)
	}
}

func (s *scratch) parsePatches(m int, r *reader) {
	next := 0
	for range r.length(m) {
		at, high := next+r.length(m), unfold(r.uvarint())
		if at >= m || r.err != nil {
			r.fail("a patch beyond the last number")
			return
		}
		s.patches = append(s.patches, patch{at, high})
		next = at + 1
	}
}

func (s *scratch) parseResiduals(residuals []uint64, sh shape, r *reader) {
	packed := r.take(bitsLen(len(residuals), sh.width))
	clear(s.bytes[copy(s.bytes[:], packed):][:slack])
	unpackBits(residuals, s.bytes[:], sh.width)
	if sh.unary {
		n := copy(s.bytes[:len(residuals)*(maxUnary+1)/8+1], r.rest)
		clear(s.bytes[n:][:slack])
		length := addUnary(residuals, s.bytes[:n+slack], sh.width)
		if length == 0 {
			r.fail("unary numbers that end early")
		}
		r.take(length)
	}
	if sh.radix != 0 {
		packed := r.take(digitsLen(len(residuals), sh.radix))
		clear(s.bytes[copy(s.bytes[:], packed):][:slack])
		addDigits(residuals, s.bytes[:], sh.width, sh.radix, s.groups[:])
	}
	for _, p := range s.patches {
		residuals[p.at] += uint64(p.high) << sh.width
	}
	if sh.folded {
		for i, x := range residuals {
			residuals[i] = uint64(unfold(x))
		}
	}
}

// restore makes the other numbers from the first and the residuals.
func (sh shape) restore(numbers []int64, residuals []uint64) {
	unit := int64(sh.unit)
	base, slope := sh.base*unit, sh.slope
	x := numbers[0]
	numbers = numbers[1:][:len(residuals)]
	switch sh.order {
	case flat:
		x += base
		for i, r := range residuals {
			numbers[i] = x + int64(r)*unit
		}
	case line:
		x += base
		y := int64(0)
		for i, r := range residuals {
			y += slope
			numbers[i] = x + (y>>lineShift+int64(r))*unit
		}
	case delta:
		for i, r := range residuals {
			x += base + int64(r)*unit
			numbers[i] = x
		}
	case deltaOfDelta:
		step := slope * unit
		for i, r := range residuals {
			step += base + int64(r)*unit
			x += step
			numbers[i] = x
		}
	}
}

// fold is the zigzag code: small numbers of either sign become small ones.
func fold(x int64) uint64 { return uint64(x)<<1 ^ uint64(x>>63) }

func unfold(x uint64) int64 { return int64(x>>1) ^ -int64(x&1) }
