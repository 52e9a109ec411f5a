package pebble

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/promtsd/promtsd/store"
)

// A value of the LSM tree is the timestamp and the value of one cell, and its qualifier where the key does not hold it
// whole (see column.go):
//
//	 4 bits     4 bits   w bytes                      the rest
//	+----------+--------+----------------------------+----------------------------------------------+
//	| encoding | w      | timestamp, ms, big endian  | encoding 0: value                            |
//	|          |        |                            | encoding 1: uvarint n, qualifier (n), value  |
//	|          |        |                            | encoding 2: qualifier and value, packed      |
//	+----------+--------+----------------------------+----------------------------------------------+
//
// w is the fewest bytes that hold the timestamp, 6 until the year 10889; a negative one takes 8. Encoding 0 goes with
// qualifiers that stand in the key, encodings 1 and 2 with those that do not. How encoding 2 is read is known to
// Packing.
const (
	encodingPlain  = 0
	encodingLong   = 1
	encodingPacked = 2

	widthBits = 4
	widthMask = 1<<widthBits - 1
)

// header is what stands before the rest of a value.
type header struct {
	encoding  byte
	timestamp int64
	rest      []byte // points into the value
}

// timestampWidth is w for a timestamp.
func timestampWidth(timestamp int64) int { return (bits.Len64(uint64(timestamp)) + 7) / 8 }

// headerLen is the length of what appendHeader appends.
func headerLen(timestamp int64) int { return 1 + timestampWidth(timestamp) }

// appendHeader appends the encoding and the timestamp of a cell.
func appendHeader(dst []byte, encoding byte, timestamp int64) []byte {
	w := timestampWidth(timestamp)
	dst = append(dst, encoding<<widthBits|byte(w))
	var ts [8]byte
	binary.BigEndian.PutUint64(ts[:], uint64(timestamp))
	return append(dst, ts[8-w:]...)
}

// parseHeader takes the value of a cell apart, up to its encoding.
func parseHeader(b []byte) (header, error) {
	if len(b) == 0 {
		return header{}, fmt.Errorf("%w: a cell without a encoding byte", store.ErrCorrupt)
	}
	encoding, w := b[0]>>widthBits, int(b[0]&widthMask)
	if encoding > encodingPacked || w > 8 || len(b) < 1+w {
		return header{}, fmt.Errorf("%w: a cell of %d bytes in unknown encoding 0x%02x", store.ErrCorrupt, len(b), b[0])
	}
	var ts uint64
	for _, c := range b[1 : 1+w] {
		ts = ts<<8 | uint64(c)
	}
	return header{encoding: encoding, timestamp: int64(ts), rest: b[1+w:]}, nil
}

// formatValue writes a cell's value for people.
func formatValue(b []byte) string {
	h, err := parseHeader(b)
	if err != nil {
		return fmt.Sprintf("?%x", clip(b))
	}
	return fmt.Sprintf("%d:%x@%d", h.encoding, h.rest, h.timestamp)
}
