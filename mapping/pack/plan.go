package pack

import (
	"math/bits"
	"slices"
)

// plan is a shape and what to fill it with.
type plan struct {
	shape
	steps []int64 // residuals, before base is taken off
	cost  int     // bits of the residuals, about
}

// planColumn finds a cheap shape for numbers, of which there are two or more. level is what to try besides delta and
// deltaOfDelta: flat, or line for times.
func (s *scratch) planColumn(numbers []int64, level order) plan {
	m := len(numbers) - 1
	deltas, deltasOfDeltas, levels := s.steps[0][:m], s.steps[1][:m], s.steps[2][:m]
	differ := int64(0)
	for i, x := range numbers[1:] {
		deltas[i] = x - numbers[i]
		differ |= deltas[i] ^ deltas[0]
	}
	if differ == 0 {
		return plan{shape: shape{order: delta, unit: 1, base: deltas[0]}, steps: deltas}
	}
	unit := divisor(deltas)
	if unit > 1 {
		for i, d := range deltas {
			deltas[i] = d / int64(unit)
		}
	}
	last, sum := deltas[0], int64(0)
	for i, d := range deltas {
		deltasOfDeltas[i] = d - last
		last = d
		sum += d
		levels[i] = sum
	}

	best := measure(deltas)
	best.order = delta
	if p := measure(deltasOfDeltas); p.cost < best.cost {
		best, best.order, best.slope = p, deltaOfDelta, deltas[0]
	}
	slope := int64(0)
	if level == line {
		slope = lineSlope(levels)
		for i := range levels {
			levels[i] -= int64(i+1) * slope >> lineShift
		}
	}
	if p := measure(levels); p.cost < best.cost {
		best, best.order, best.slope = p, level, slope
	}
	best.unit = unit
	return best
}

// lineSlope is the slope of the line through the middles of the two halves of levels, which jitter tilts less than one
// through the ends. Levels must be so small that their sum has lineShift bits to spare, as those of times are.
func lineSlope(levels []int64) int64 {
	half, m := len(levels)/2, len(levels)
	rise := int64(0)
	for i := range half {
		rise += levels[m-1-i] - levels[i]
	}
	slope := rise << lineShift / int64(half*(m-half))
	// A slope that is nearly whole is whole, and what it misses comes from the jitter.
	whole := (slope + 1<<(lineShift-1)) >> lineShift << lineShift
	if tilt := (slope - whole) * int64(m); -2<<lineShift < tilt && tilt < 2<<lineShift {
		return whole
	}
	return slope
}

// divisor is the greatest number that divides all steps, which are not all 0.
func divisor(steps []int64) uint64 {
	var unit uint64
	for _, d := range steps {
		rest := uint64(max(d, -d))
		if unit != 0 {
			rest %= unit
		}
		for rest != 0 {
			unit, rest = rest, unit%rest
		}
		if unit == 1 {
			break
		}
	}
	return unit
}

const (
	samples   = 9 // of the steps, for their middle
	patchCost = 8 // bits of a patch besides those of its number, about
	rareShare = 4 // patches are for not more than one step in so many
)

// measure finds the base and width with which steps are written cheapest.
func measure(steps []int64) plan {
	middle := middleOf(steps)
	var lengths [65]int // how many steps have so many bits, as distances from the middle
	for _, d := range steps {
		lengths[bits.Len64(fold(d-middle))]++
	}
	width, patches := trim(&lengths, len(steps))

	// Of the steps that are no patches: their bounds, and their sums as distances from the lower bound and the middle.
	least, most, inside := middle, middle, 0
	var fromMiddle, fromLeast float64
	for _, d := range steps {
		u := fold(d - middle)
		if bits.Len64(u) > int(width) {
			continue
		}
		least, most = min(least, d), max(most, d)
		fromMiddle += float64(u)
		fromLeast += float64(d - middle)
		inside++
	}
	fromLeast += float64(inside) * float64(middle-least)

	p := plan{steps: steps}
	p.base, p.width = least, uint(bits.Len64(uint64(most-least)))
	if p.width > maxWidth {
		p.base, p.width, patches = 0, wordWidth, 0
	}
	p.cost = len(steps)*int(p.width) + patches
	if p.width <= maxWidth {
		p.tryDigits(uint64(most-least), patches)
		p.tryUnary(least, fromLeast, false)
		p.tryUnary(middle, fromMiddle, true)
	}
	return p
}

// middleOf is about the median of steps.
func middleOf(steps []int64) int64 {
	var picked [samples]int64
	n := min(len(steps), samples)
	for i := range n {
		picked[i] = steps[i*len(steps)/n]
	}
	slices.Sort(picked[:n])
	return picked[n/2]
}

// trim finds the width with which numbers of the given lengths are the shortest if the longer ones become patches, and
// tells the bits of these.
func trim(lengths *[65]int, m int) (width uint, patches int) {
	top := len(lengths) - 1
	for lengths[top] == 0 {
		top--
	}
	width = uint(top)
	least, above := m*top, 0
	for w := top; w >= 0 && above*rareShare <= m; w-- {
		// Down to the next length that occurs, a shorter width is cheaper.
		if lengths[w] == 0 && w > 0 {
			continue
		}
		cost := 0
		for l := w + 1; l <= top; l++ {
			cost += lengths[l] * (patchCost + (l-w+7)/7*8)
		}
		if m*w+cost < least {
			width, patches, least = uint(w), cost, m*w+cost
		}
		above += lengths[w]
	}
	return width, patches
}

// tryUnary changes p to the upper bits in unary if that is cheaper, with residuals counted from base; sum is theirs.
func (p *plan) tryUnary(base int64, sum float64, folded bool) {
	// The best width is about that of ln 2 times the mean, and the mean is the least that unary numbers can cost.
	m := len(p.steps)
	width := uint(max(0, bits.Len64(uint64(0.69*sum/float64(m)))-1))
	if m*int(width+1) >= p.cost {
		return
	}
	var narrow, wide uint64
	for _, d := range p.steps {
		u := uint64(d - base)
		if folded {
			u = fold(d - base)
		}
		u >>= width
		narrow += min(u, maxUnary+1)
		wide += min(u/2, maxUnary+1)
	}
	cost := m*int(width+1) + int(narrow)
	if c := m*int(width+2) + int(wide); c < cost {
		width, cost = width+1, c
	}
	if cost < p.cost {
		p.base, p.width, p.radix, p.folded, p.unary, p.cost = base, width, 0, folded, true, cost
	}
}

// tryDigits changes p to the upper bits as digits if that is cheaper, for residuals up to most; patches is the cost of
// the larger ones.
func (p *plan) tryDigits(most uint64, patches int) {
	const head = 16 // bits of the radix and of bytes that are not full, about
	m, whole := len(p.steps), p.width
	for width := max(whole, 8) - 8; width < whole; width++ {
		radix := most>>width + 1
		if radix > maxRadix {
			continue
		}
		g := groups[radix]
		if cost := m*int(width) + m*int(g.bits)/g.digits + head + patches; cost < p.cost {
			p.width, p.radix, p.cost = width, radix, cost
		}
	}
}
