package pack

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestBits_OfAnyWidthComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.OneOf(rapid.UintRange(0, maxWidth), rapid.Just(uint(wordWidth))).Draw(t, "width")
		n := rapid.IntRange(1, 300).Draw(t, "n")
		numbers := rapid.SliceOfN(rapid.Uint64(), n, n).Draw(t, "numbers")
		want := make([]uint64, len(numbers))
		for i, x := range numbers {
			want[i] = x & (1<<width - 1)
		}
		packed := appendBits([]byte{1}, numbers, width)
		if got, want := len(packed), 1+bitsLen(len(numbers), width); got != want {
			t.Fatalf("%d numbers of %d bits: got %d bytes, want %d", len(numbers), width, got, want)
		}
		got := make([]uint64, len(numbers))
		unpackBits(got, append(packed, make([]byte, slack)...)[1:], width)
		if !slices.Equal(got, want) {
			t.Fatalf("%x in %d bits as %x: got %x", want, width, packed, got)
		}
	})
}

func TestUnary_ComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.UintRange(0, maxWidth).Draw(t, "width")
		n := rapid.IntRange(1, 300).Draw(t, "n")
		want := rapid.SliceOfN(rapid.Uint64Range(0, maxUnary<<width), n, n).Draw(t, "numbers")
		got := make([]uint64, len(want))
		for i, x := range want {
			got[i] = x & (1<<width - 1)
		}
		packed := appendUnary([]byte{1}, want, width)[1:]
		padded := append(slices.Clone(packed), make([]byte, slack)...)
		if length := addUnary(slices.Clone(got), padded[1:], width); length != 0 && len(packed) == 1 {
			t.Fatalf("no bytes: got %d", length)
		}
		if length := addUnary(got, padded, width); length != len(packed) || !slices.Equal(got, want) {
			t.Fatalf("%x over %d bits as %x: got %x, %d bytes", want, width, packed, got, length)
		}
	})
}
