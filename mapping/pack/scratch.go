package pack

import (
	"slices"
	"sync"
)

// scratch is the memory in which a cell lies taken apart by columns. It has the room for the largest cell, a third of
// a megabyte, which is why it is pooled; of that, a cell of 240 points touches little.
type scratch struct {
	times      [maxPoints]int64  // offsets, in the unit of the qualifiers
	flags      [maxPoints]byte   // of the qualifiers
	raw        [maxPoints]uint64 // value bytes, the first the most significant, the missing ones 0
	number     [maxPoints]int64  // the column that the values become
	distance   [maxPoints]int64  // a further column, if the decimals of the other are only near
	exceptions []exception       // the values that this column does not give

	floats   [maxPoints]float64  // the values, if some are no integers
	derived  [maxPoints]byte     // the flags that the values would have of themselves
	steps    [3][maxPoints]int64 // of a column, of three orders
	residual [maxPoints]uint64   // of a column
	groups   [maxPoints]uint64   // of the digits of a column
	patches  []patch             // of a column
	bytes    [maxPoints*maxValue + slack]byte
	proof    []byte // what Append's result expands to
}

// exception is a value that is listed apart, as its bits.
type exception struct {
	at   int
	bits uint64
}

var pool = sync.Pool{New: func() any { return new(scratch) }}

// grow makes dst n bytes longer; what they are is not defined.
func grow(dst []byte, n int) []byte { return slices.Grow(dst, n)[:len(dst)+n] }
