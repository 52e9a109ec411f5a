package pebble

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/promtsd/promtsd/store"
)

// A value of the LSM tree is the timestamp and the value of one cell:
//
//	 4 bits   4 bits    w bytes                      the rest
//	+--------+--------+----------------------------+-----------+
//	| form 0 | w      | timestamp, ms, big endian  | value     |
//	+--------+--------+----------------------------+-----------+
//
// w is the fewest bytes that hold the timestamp, 6 until the year 10889; a negative one takes 8. Forms other than 0 are
// not in use.
const (
	formPlain = 0 << 4
	formMask  = 0xf0
	widthMask = 0x0f
)

// timestampWidth is w for a timestamp.
func timestampWidth(timestamp int64) int { return (bits.Len64(uint64(timestamp)) + 7) / 8 }

// valueLen is the length of what appendValue appends.
func valueLen(timestamp int64, value []byte) int { return 1 + timestampWidth(timestamp) + len(value) }

// appendValue appends the value of a cell in form 0.
func appendValue(dst []byte, timestamp int64, value []byte) []byte {
	w := timestampWidth(timestamp)
	dst = append(dst, byte(formPlain|w))
	var ts [8]byte
	binary.BigEndian.PutUint64(ts[:], uint64(timestamp))
	dst = append(dst, ts[8-w:]...)
	return append(dst, value...)
}

// parseValue takes the value of a cell apart; the result points into b.
func parseValue(b []byte) (timestamp int64, value []byte, err error) {
	if len(b) == 0 {
		return 0, nil, fmt.Errorf("%w: a cell without a form byte", store.ErrCorrupt)
	}
	w := int(b[0] & widthMask)
	if b[0]&formMask != formPlain || w > 8 || len(b) < 1+w {
		return 0, nil, fmt.Errorf("%w: a cell of %d bytes in unknown form 0x%02x", store.ErrCorrupt, len(b), b[0])
	}
	var ts uint64
	for _, c := range b[1 : 1+w] {
		ts = ts<<8 | uint64(c)
	}
	return int64(ts), b[1+w:], nil
}

// formatValue writes a cell's value for people.
func formatValue(b []byte) string {
	ts, v, err := parseValue(b)
	if err != nil {
		return fmt.Sprintf("?%x", clip(b))
	}
	return fmt.Sprintf("%x@%d", v, ts)
}
