package pack

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestDigits_OfAnyRadixComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		radix := rapid.Uint64Range(2, maxRadix).Draw(t, "radix")
		width := rapid.UintRange(0, maxWidth).Draw(t, "width")
		n := rapid.IntRange(1, 300).Draw(t, "n")
		digits := rapid.SliceOfN(rapid.Uint64Range(0, radix-1), n, n).Draw(t, "digits")
		low := rapid.Uint64Range(0, 1<<width-1).Draw(t, "lower bits")
		numbers, want := make([]uint64, n), make([]uint64, n)
		for i, d := range digits {
			numbers[i], want[i] = low, d<<width+low
		}
		var room [300]uint64
		packed := appendDigits([]byte{1}, want, width, radix, room[:])[1:]
		if got := len(packed); got != digitsLen(n, radix) {
			t.Fatalf("%d digits of radix %d: got %d bytes, want %d", n, radix, got, digitsLen(n, radix))
		}
		addDigits(numbers, append(slices.Clone(packed), make([]byte, slack)...), width, radix, room[:])
		if !slices.Equal(numbers, want) {
			t.Fatalf("%x over %d bits as %x: got %x", want, width, packed, numbers)
		}
	})
}

// Of the bits that digits take, not more than a few hundredths are wasted.
func TestGroups_WasteLittle(t *testing.T) {
	for radix := 2; radix <= maxRadix; radix++ {
		g := groups[radix]
		got, want := float64(g.bits)/float64(g.digits), math.Log2(float64(radix))
		if g.bits > groupBits || got < want || got > 1.02*want && got > want+0.05 {
			t.Errorf("radix %d: %d digits in %d bits, %.3f each, want about %.3f", radix, g.digits, g.bits, got, want)
		}
	}
}
