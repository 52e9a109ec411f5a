package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/promtsd/promtsd/store"
)

// Packing makes cells smaller on disk. It is asked for cells with qualifiers of more than 16 bytes, except those of log
// tables. Both functions are called by many goroutines at once, and keep nothing of what they are given.
type Packing struct {
	// Pack appends to dst a encoding of a cell's qualifier and value from which Unpack gives back every byte of both, or
	// says that it has none that is smaller. It must not change what is in dst.
	Pack func(dst, qualifier, value []byte) (packed []byte, ok bool)

	// Unpack appends to dst the qualifier, then the value, and says how long the qualifier is. What is no packed cell is
	// an error, never a panic.
	Unpack func(dst, packed []byte) (out []byte, qualifier int, err error)
}

// cellEncoder turns cells into keys and values of the tree. It is for one goroutine.
type cellEncoder struct {
	columner
	packing Packing
	packed  []byte
}

// payload is the rest of a cell's value: its encoding, and the two parts that follow the header.
type payload struct {
	encoding   byte
	head, body []byte // of encoding 1, head is the qualifier, with its length before it
}

// payload decides how a cell is stored. It is valid until the next call.
func (e *cellEncoder) payload(qualifier, value []byte, pack bool) payload {
	if len(qualifier) <= maxPlain {
		return payload{encoding: encodingPlain, body: value}
	}
	if pack && e.packing.Pack != nil {
		packed, ok := e.packing.Pack(e.packed[:0], qualifier, value)
		if cap(packed) > cap(e.packed) {
			e.packed = packed
		}
		if ok && len(packed) < uvarintLen(len(qualifier))+len(qualifier)+len(value) {
			return payload{encoding: encodingPacked, body: packed}
		}
	}
	return payload{encoding: encodingLong, head: qualifier, body: value}
}

func (p payload) len() int {
	if p.encoding == encodingLong {
		return uvarintLen(len(p.head)) + len(p.head) + len(p.body)
	}
	return len(p.body)
}

// append appends the value of a cell.
func (p payload) append(dst []byte, timestamp int64) []byte {
	dst = appendHeader(dst, p.encoding, timestamp)
	if p.encoding == encodingLong {
		dst = binary.AppendUvarint(dst, uint64(len(p.head)))
		dst = append(dst, p.head...)
	}
	return append(dst, p.body...)
}

func uvarintLen(n int) int { return (bits.Len(uint(n)|1) + 6) / 7 }

// decode appends the qualifier of a cell, then its value, and says how long the qualifier is. The column is that of its
// key.
func (p *Packing) decode(dst, column []byte, h header) (out []byte, qualifier int, err error) {
	if len(column) > hashedLen || isHashed(column) == (h.encoding == encodingPlain) {
		return dst, 0, fmt.Errorf("%w: a cell in encoding %d under a column of %d bytes", store.ErrCorrupt, h.encoding,
			len(column))
	}
	switch h.encoding {
	case encodingPlain:
		return append(append(dst, column...), h.rest...), len(column), nil
	case encodingLong:
		n, size := binary.Uvarint(h.rest)
		if size <= 0 || n > uint64(len(h.rest)-size) {
			return dst, 0, fmt.Errorf("%w: a cell's qualifier does not end", store.ErrCorrupt)
		}
		out, qualifier = append(dst, h.rest[size:]...), int(n)
	default:
		if p.Unpack == nil {
			return dst, 0, fmt.Errorf("%w: a packed cell in a store that was opened without its packing", store.ErrCorrupt)
		}
		if out, qualifier, err = p.Unpack(dst, h.rest); err != nil {
			return dst, 0, fmt.Errorf("%w: unpack a cell of %d bytes: %w", store.ErrCorrupt, len(h.rest), err)
		}
	}
	if cell := out[len(dst):]; qualifier <= maxPlain || qualifier > len(cell) || !bytes.HasPrefix(cell, column[:headLen]) {
		return dst, 0, fmt.Errorf("%w: a cell's qualifier of %d bytes is not that of its key", store.ErrCorrupt, qualifier)
	}
	return out, qualifier, nil
}
