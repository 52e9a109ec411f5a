package pack

import (
	"encoding/binary"
	"math/bits"
)

// The widths of packed numbers: a word read from the byte where a number begins has 57 bits of it for sure, so longer
// ones take a word each.
const (
	maxWidth  = 57
	wordWidth = 64
)

// bitsLen is the number of bytes of n numbers of width bits.
func bitsLen(n int, width uint) int { return (n*int(width) + 7) / 8 }

// appendBits appends the lowest width bits of each number.
func appendBits(dst []byte, numbers []uint64, width uint) []byte {
	length := bitsLen(len(numbers), width)
	start := len(dst)
	dst = grow(dst, length+slack)
	out := dst[start:]
	var word uint64 // what is not written yet
	filled, at := uint(0), 0
	for _, x := range numbers {
		x &= 1<<width - 1
		word |= x << filled
		filled += width
		if filled >= 64 {
			binary.LittleEndian.PutUint64(out[at:], word)
			at += 8
			filled -= 64
			word = x >> (width - filled)
		}
	}
	binary.LittleEndian.PutUint64(out[at:], word)
	return dst[:start+length]
}

// unpackBits reads numbers of width bits. packed has slack bytes beyond them.
func unpackBits(numbers []uint64, packed []byte, width uint) {
	switch width {
	case 0:
		clear(numbers)
	case wordWidth:
		for i := range numbers {
			numbers[i] = binary.LittleEndian.Uint64(packed[8*i:])
		}
	default:
		mask := uint64(1)<<width - 1
		bit := uint(0)
		for i := range numbers {
			numbers[i] = binary.LittleEndian.Uint64(packed[bit/8:]) >> (bit % 8) & mask
			bit += width
		}
	}
}

// appendUnary appends in unary what each number has above width.
func appendUnary(dst []byte, numbers []uint64, width uint) []byte {
	var word uint64 // what is not written yet
	filled := uint(0)
	for _, x := range numbers {
		filled += uint(x >> width)
		if filled >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, word)
			word, filled = 0, filled-64
		}
		word |= 1 << filled
		filled++
	}
	dst = binary.LittleEndian.AppendUint64(dst, word)
	return dst[:len(dst)-8+int(filled+7)/8]
}

// addUnary adds to each number a unary one, times 1<<width, and tells the bytes of these, or 0 if they end early. The
// last slack bytes of unary are 0 and not theirs.
func addUnary(numbers []uint64, unary []byte, width uint) (length int) {
	var word uint64
	at, last := 0, -1 // where the next word begins, and the bit that the last number ended with
	for i := range numbers {
		for word == 0 {
			if at+slack > len(unary) {
				return 0
			}
			word = binary.LittleEndian.Uint64(unary[at:])
			at += 8
		}
		bit := 8*(at-8) + bits.TrailingZeros64(word)
		word &= word - 1
		numbers[i] += uint64(bit-last-1) << width
		last = bit
	}
	return last/8 + 1
}
