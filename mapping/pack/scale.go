package pack

import (
	"math"

	"github.com/promtsd/promtsd/mapping"
)

// scale is how values become a column of integers: the power of ten that they are multiplied by, or asBits. A power with
// near is that of decimals that were calculated, as sums are, and have the errors of that.
type scale byte

const (
	integers scale = 0
	maxPower scale = 15
	near     scale = 32 // a bit
	asBits   scale = 16 // the number has the bits of the float64: its steps are shorter than their XOR
)

const (
	oddCost     = 80      // bits of an odd value, about
	bitsCost    = 50      // bits of a number that has those of a float64, about
	powerCost   = 3.32    // bits that one more power of ten adds to each number, about
	nearShare   = 16      // not more than one value in so many is odd, or near decimals are tried
	nearSamples = 16      // of the values, for nearScale
	tryAtLeast  = 8       // values, before it is said that they are of full precision
	exact       = 1 << 53 // below, an integer is exact in a float64
)

func (sc scale) known() bool { return sc <= asBits || integers < sc&^near && sc&^near <= maxPower }

// tens has the powers of ten, all of which are exact.
var tens = [maxPower + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// scaled is the integer of which a division by a power of ten gives v to the bit.
func scaled(v, ten float64) (x int64, ok bool) {
	x = int64(math.RoundToEven(v * ten))
	return x, -exact < x && x < exact && math.Float64bits(float64(x)/ten) == math.Float64bits(v)
}

// fillNumbers makes the n values a column, in s.number and s.odd. Unless they are all integers, s.floats has them too.
func (s *scratch) fillNumbers(n int) scale {
	s.odd = s.odd[:0]
	raw, flags, numbers, floats := s.raw[:n], s.flags[:n], s.number[:n], s.floats[:n]
	var all byte
	for i, f := range flags {
		all |= f
		numbers[i] = rawInt(raw[i], f)
	}
	if all&mapping.FlagFloat == 0 {
		return integers
	}
	for i, f := range flags {
		floats[i] = rawFloat(raw[i], f)
	}
	sc := chooseScale(floats)
	if sc&near != 0 {
		s.fillNear(n, sc)
		return sc
	}
	if sc == asBits {
		for i, v := range floats {
			numbers[i] = int64(math.Float64bits(v))
		}
		return asBits
	}
	ten := tens[sc]
	for i, v := range floats {
		// An integer of 8 bytes may be more exact than as a float64.
		if sc == integers && flags[i]&mapping.FlagFloat == 0 {
			continue
		}
		x, ok := scaled(v, ten)
		if !ok {
			s.odd = append(s.odd, oddValue{i, math.Float64bits(v)})
			x = extrapolate(numbers[:i])
		}
		numbers[i] = x
	}
	s.fillLead(numbers)
	return sc
}

// extrapolate gives a number for the place of an odd value behind numbers, which costs their column little.
func extrapolate(numbers []int64) int64 {
	switch n := len(numbers); n {
	case 0:
		return 0
	case 1:
		return numbers[0]
	default:
		return 2*numbers[n-1] - numbers[n-2]
	}
}

// fillLead gives odd values that begin a column the number that comes after them.
func (s *scratch) fillLead(numbers []int64) {
	lead := 0
	for lead < len(s.odd) && s.odd[lead].at == lead {
		lead++
	}
	if lead < len(numbers) {
		for i := range lead {
			numbers[i] = numbers[lead]
		}
	}
}

// chooseScale finds the power of ten that makes the numbers and the odd values the smallest.
func chooseScale(floats []float64) scale {
	var counts [maxPower + 1]int // the values by the least power that gives them back
	odd, tried, failed := 0, 0, 0
	for _, v := range floats {
		if v-v != 0 { // infinite, or no number
			odd++
			continue
		}
		power := 0
		for power < len(tens) {
			if _, ok := scaled(v, tens[power]); ok {
				counts[power]++
				break
			}
			power++
		}
		tried++
		if power == len(tens) {
			odd++
			// Where most fail, as values of full precision do, there is no use in trying all.
			if failed++; failed > tryAtLeast && 2*failed > tried {
				return nearScale(floats, asBits)
			}
		}
	}
	best, least, bestOdd := asBits, bitsCost*float64(len(floats)), odd
	for power := maxPower; ; power-- {
		cost := powerCost*float64(power)*float64(len(floats)) + oddCost*float64(odd)
		if cost < least {
			best, least, bestOdd = power, cost, odd
		}
		if power == integers {
			break
		}
		odd += counts[power]
	}
	if best == asBits || bestOdd*nearShare > len(floats) {
		return nearScale(floats, best)
	}
	return best
}

// nearScale is the least power of ten with which nearly all values are far nearer to a decimal than by chance, or other.
func nearScale(floats []float64, other scale) scale {
	const closeness = 1. / 32 // of the distance between decimals, within which one value in 16 is by chance
	count := min(len(floats), nearSamples)
	for power := integers + 1; power <= maxPower; power++ {
		far, ten := 0, tens[power]
		for i := 0; i < count && far*8 <= count; i++ {
			v := floats[i*len(floats)/count]
			x := math.RoundToEven(v * ten)
			if near := v != 0 && math.Abs(x) < exact*closeness && math.Abs(v-x/ten)*ten < closeness; !near { // NaN is not
				far++
			}
		}
		if far*8 <= count {
			return power | near
		}
	}
	return other
}

// fillNear makes two columns of the values: their decimals in s.number, and in s.distance what they miss these by.
func (s *scratch) fillNear(n int, sc scale) {
	numbers, ten := s.number[:n], tens[sc&^near]
	for i, v := range s.floats[:n] {
		x := extrapolate(numbers[:i])
		if scaled := math.RoundToEven(v * ten); math.Abs(scaled) < exact {
			x = int64(scaled)
		}
		numbers[i] = x
		s.distance[i] = int64(math.Float64bits(v) - math.Float64bits(float64(x)/ten))
	}
}

// fillFloats makes s.floats of the column.
func (s *scratch) fillFloats(n int, sc scale) {
	numbers, floats := s.number[:n], s.floats[:n]
	switch {
	case sc == asBits:
		for i, x := range numbers {
			floats[i] = math.Float64frombits(uint64(x))
		}
	case sc&near != 0:
		ten := tens[sc&^near]
		for i, x := range numbers {
			floats[i] = math.Float64frombits(math.Float64bits(float64(x)/ten) + uint64(s.distance[i]))
		}
	default:
		ten := tens[sc]
		for i, x := range numbers {
			floats[i] = float64(x) / ten
		}
	}
	for _, o := range s.odd {
		floats[o.at] = math.Float64frombits(o.bits)
	}
}
