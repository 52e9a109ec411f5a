package pack

import (
	"encoding/binary"
	"math/bits"
)

// Numbers whose range is no power of two have their upper bits written as digits of a base, the radix, so that one of
// 129 values takes little more than 7 bits instead of 8. A group of digits is one number, its first digit the lowest:
//
//	d[0] + d[1]*radix + d[2]*radix^2 ..
//
// Groups are packed bits, as many for each as the largest needs. The last group has what digits are left, and stands in
// whole bytes behind the others, the lowest first. Groups have groupBits at most, so that with a radix of 8 bits the
// product of a group and the rounded inverse of the radix is exact in its upper 64 bits.
const (
	groupBits = 56
	maxRadix  = 255
)

// group is how many digits of a radix are one number, and its bits.
type group struct {
	digits int
	bits   uint
}

// groups has the group of each radix that wastes the least.
var groups = func() (gs [maxRadix + 1]group) {
	for radix := 2; radix <= maxRadix; radix++ {
		best := group{1, digitsBits(uint64(radix), 1)}
		for n := 2; digitsBits(uint64(radix), n) <= groupBits; n++ {
			if b := digitsBits(uint64(radix), n); int(b)*best.digits <= int(best.bits)*n {
				best = group{n, b}
			}
		}
		gs[radix] = best
	}
	return gs
}()

// digitsBits is the number of bits that n digits need together, or some number beyond groupBits.
func digitsBits(radix uint64, n int) uint {
	power := uint64(1)
	for range n {
		if power > 1<<groupBits {
			return groupBits + 1
		}
		power *= radix
	}
	return uint(bits.Len64(power - 1))
}

// digitsLen is the number of bytes of n digits.
func digitsLen(n int, radix uint64) int {
	g := groups[radix]
	return bitsLen(n/g.digits, g.bits) + bitsLen(1, digitsBits(radix, n%g.digits))
}

// appendDigits appends what the numbers have above width, each less than radix. room is for a number of each group.
func appendDigits(dst []byte, numbers []uint64, width uint, radix uint64, room []uint64) []byte {
	g := groups[radix]
	full := room[:0]
	for len(numbers) >= g.digits {
		full = append(full, joinDigits(numbers[:g.digits], width, radix))
		numbers = numbers[g.digits:]
	}
	dst = appendBits(dst, full, g.bits)
	last := binary.LittleEndian.AppendUint64(dst, joinDigits(numbers, width, radix))
	return last[:len(dst)+bitsLen(1, digitsBits(radix, len(numbers)))]
}

func joinDigits(numbers []uint64, width uint, radix uint64) (x uint64) {
	for i := len(numbers) - 1; i >= 0; i-- {
		x = x*radix + numbers[i]>>width
	}
	return x
}

// addDigits adds to each number its digit, times 1<<width. packed is as long as digitsLen says, and has slack bytes of
// 0 behind.
func addDigits(numbers []uint64, packed []byte, width uint, radix uint64, room []uint64) {
	g := groups[radix]
	full := room[:len(numbers)/g.digits]
	unpackBits(full, packed, g.bits)
	for _, x := range full {
		splitDigits(numbers[:g.digits], x, width, radix)
		numbers = numbers[g.digits:]
	}
	last := packed[bitsLen(len(full), g.bits):]
	splitDigits(numbers, binary.LittleEndian.Uint64(last), width, radix)
}

func splitDigits(numbers []uint64, x uint64, width uint, radix uint64) {
	inverse := ^uint64(0)/radix + 1
	for i := range numbers {
		quotient, _ := bits.Mul64(x, inverse)
		numbers[i] += (x - quotient*radix) << width
		x = quotient
	}
}
