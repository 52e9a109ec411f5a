// Package pack makes cells of many points small, for a store that keeps them on disk, and gives them back to the byte.
//
// A cell of the data table lists its points: their qualifiers, and apart from these their values. Packed, it has two
// columns of integers, one of times and one of values (and where these are not quite decimals, one of what they miss
// these by), each written as what it deviates from the nearly constant:
//
//	 1      1       1..2   0, 1 or n   ..           ..       ..        ..
//	+------+-------+------+-----------+------------+--------+---------+-----------+
//	| head | scale | n    | flags     | exceptions | times  | numbers | distances |
//	+------+-------+------+-----------+------------+--------+---------+-----------+
//
//	head:  | 00 | exceptions: 1 bit | flags: 2 bits | seconds: 1 bit | trailer: 2 bits |
//
// n is the number of points, LEB128 as are all numbers of variable length here. Times are offsets in the unit of the
// qualifiers, all of which are in seconds or all in milliseconds. A value is number/10^scale, correctly rounded, or the
// number has the bits of the float64 if scale is 16. If scale is 32 + p, number/10^p is only near the value, and the
// distance is what the bits of the value, as an integer, have more than those of that float64. Exceptions are what no
// such number gives, such as NaN: a list of their count, and for each the distance from the place after the one before
// and the float64 (8 bytes, big endian). Flags are those of the points, which tell the encodings of values: left out
// where they are those that mapping.AppendValue would have given, one byte if they are the same for all points, else
// one byte each. The trailer is what follows the last value, and columns are drawn at shape.
//
// What is packed here is meant to be compressed by blocks of many cells, which finds what neighbours have in common at
// their beginnings. Bits are packed tightly all the same: behind zstd, whole bytes by planes took a sixth more.
package pack

// flagsKind is where the flags of the points come from.
type flagsKind byte

const (
	flagsFollow flagsKind = iota // from the values
	flagsSame                    // one byte for all
	flagsListed                  // one byte each
)

// trailer is what follows the last value of a cell. OpenTSDB writes 0 behind points that are all in seconds or all in
// milliseconds, and 1 otherwise; but it can leave the byte out, or have it wrong.
type trailer byte

const (
	trailerNone trailer = iota
	trailerZero
	trailerOne
)

// The first byte of a packed cell.
const (
	trailerMask    = 0x03
	secondsFlag    = 0x04
	flagsShift     = 3
	flagsMask      = 0x03 << flagsShift
	exceptionsFlag = 0x20
	knownHead      = trailerMask | secondsFlag | flagsMask | exceptionsFlag
)

const (
	// maxPoints is the number of points up to which a cell is packed: an hour at one second has 3600. It bounds what a
	// few packed bytes can ask Expand for, and the scratch memory.
	maxPoints = 4096

	maxValue = 8 // bytes of the longest value
	slack    = 8 // bytes that a word read or written at the last of some bytes may reach beyond them
)
