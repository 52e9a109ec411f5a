package pack

import (
	"math"

	"github.com/promtsd/promtsd/mapping"
)

// scale is how values become a column of integers: the power of ten that they are multiplied by, or asBits. A power
// with nearDecimal is that of decimals that were calculated, as sums are, and have the errors of that.
type scale byte

const (
	integers    scale = 0
	maxPower    scale = 15
	nearDecimal scale = 32 // a bit
	asBits      scale = 16 // the number has the bits of the float64: its steps are shorter than their XOR
)

const (
	exceptionCost      = 80      // bits of an exception, about
	bitsCost           = 50      // bits of a number that has those of a float64, about
	powerCost          = 3.32    // bits that one more power of ten adds to each number, about
	nearDecimalShare   = 16      // not more than one value in so many is an exception, or near decimals are tried
	nearDecimalSamples = 16      // of the values, for nearDecimalScale
	tryAtLeast         = 8       // values, before it is said that they are of full precision
	exact              = 1 << 53 // below, an integer is exact in a float64
)

func (sc scale) known() bool {
	return sc <= asBits || integers < sc&^nearDecimal && sc&^nearDecimal <= maxPower
}

// tens has the powers of ten, all of which are exact.
var tens = [maxPower + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// scaled is the integer of which a division by a power of ten gives v to the bit.
func scaled(v, ten float64) (x int64, ok bool) {
	x = int64(math.RoundToEven(v * ten))
	return x, -exact < x && x < exact && math.Float64bits(float64(x)/ten) == math.Float64bits(v)
}

// fillNumbers makes the n values a column, in s.number and s.exceptions. Unless they are all integers, s.floats has
// them too.
func (s *scratch) fillNumbers(n int) scale {
	s.exceptions = s.exceptions[:0]
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
	if sc&nearDecimal != 0 {
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
			s.exceptions = append(s.exceptions, exception{i, math.Float64bits(v)})
			x = extrapolate(numbers[:i])
		}
		numbers[i] = x
	}
	s.fillLead(numbers)
	return sc
}

// extrapolate gives a number for the place of an exception behind numbers, which costs their column little.
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

// fillLead gives exceptions that begin a column the number that comes after them.
func (s *scratch) fillLead(numbers []int64) {
	lead := 0
	for lead < len(s.exceptions) && s.exceptions[lead].at == lead {
		lead++
	}
	if lead < len(numbers) {
		for i := range lead {
			numbers[i] = numbers[lead]
		}
	}
}

// chooseScale finds the power of ten that makes the numbers and the exceptions the smallest.
func chooseScale(floats []float64) scale {
	var counts [maxPower + 1]int // the values by the least power that gives them back
	exceptions, tried, failed := 0, 0, 0
	for _, v := range floats {
		if v-v != 0 { // infinite, or no number
			exceptions++
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
			exceptions++
			// Where most fail, as values of full precision do, there is no use in trying all.
			if failed++; failed > tryAtLeast && 2*failed > tried {
				return nearDecimalScale(floats, asBits)
			}
		}
	}
	best, least, bestExceptions := asBits, bitsCost*float64(len(floats)), exceptions
	for power := maxPower; ; power-- {
		cost := powerCost*float64(power)*float64(len(floats)) + exceptionCost*float64(exceptions)
		if cost < least {
			best, least, bestExceptions = power, cost, exceptions
		}
		if power == integers {
			break
		}
		exceptions += counts[power]
	}
	if best == asBits || bestExceptions*nearDecimalShare > len(floats) {
		return nearDecimalScale(floats, best)
	}
	return best
}

// nearDecimalScale is the least power of ten with which nearly all values are far nearer to a decimal than by chance,
// or other.
func nearDecimalScale(floats []float64, other scale) scale {
	const closeness = 1. / 32 // of the distance between decimals, within which one value in 16 is by chance
	count := min(len(floats), nearDecimalSamples)
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
			return power | nearDecimal
		}
	}
	return other
}

// fillNear makes two columns of the values: their decimals in s.number, and in s.distance what they miss these by.
func (s *scratch) fillNear(n int, sc scale) {
	numbers, ten := s.number[:n], tens[sc&^nearDecimal]
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
	case sc&nearDecimal != 0:
		ten := tens[sc&^nearDecimal]
		for i, x := range numbers {
			floats[i] = math.Float64frombits(math.Float64bits(float64(x)/ten) + uint64(s.distance[i]))
		}
	default:
		ten := tens[sc]
		for i, x := range numbers {
			floats[i] = float64(x) / ten
		}
	}
	for _, o := range s.exceptions {
		floats[o.at] = math.Float64frombits(o.bits)
	}
}
