package query

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// xorChunk is a chunk in Prometheus's XOR encoding while it is written, to the byte what chunkenc.XORChunk makes of the
// same samples. That one writes bit by bit, which was half of what a streamed remote read costs; here bits are gathered
// in a word.
//
//	samples, 2 bytes | time of the first, varint | its value, 64 bits
//	second sample:     time since the first, uvarint | value
//	every further one: time | value
//
//	time:  the change of the time since the sample before, in bits
//	       0                       none
//	       10    14 bits           -8191 to 8192
//	       110   17 bits           -65535 to 65536
//	       1110  20 bits           -524287 to 524288
//	       1111  64 bits           any
//	value: XOR with the value before
//	       0                                                   equal
//	       10    its bits between the bounds of the one before all others are zero
//	       11    leading zeros, 5 bits (31 at most) | number of bits, 6 bits (64 is 0) | the bits
type xorChunk struct {
	data    []byte // but for the last bits
	word    uint64 // those, from the highest bit on
	free    uint   // bits of the word that are not used, 1 to 64
	samples uint16

	t, delta          int64
	v                 uint64
	leading, trailing uint // the bounds; none yet if their sum is above 64
}

// reset begins an empty chunk. Its memory is used again.
func (c *xorChunk) reset() {
	*c = xorChunk{data: append(c.data[:0], 0, 0), free: 64, leading: 65}
}

// append adds a sample; the chunk has fewer than 65535.
func (c *xorChunk) append(t int64, v float64) {
	value, delta := math.Float64bits(v), t-c.t
	switch c.samples {
	case 0:
		c.writeBytes(binary.AppendVarint(make([]byte, 0, binary.MaxVarintLen64), t))
		c.write(value, 64)
		delta = 0
	case 1:
		c.writeBytes(binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64), uint64(delta)))
		c.writeValue(value ^ c.v)
	default:
		c.writeTime(delta - c.delta)
		c.writeValue(value ^ c.v)
	}
	c.t, c.delta, c.v = t, delta, value
	c.samples++
}

// bytes is the whole chunk. Nothing may be added after it.
func (c *xorChunk) bytes() []byte {
	for ; c.free < 64; c.free = min(64, c.free+8) {
		c.data = append(c.data, byte(c.word>>56))
		c.word <<= 8
	}
	binary.BigEndian.PutUint16(c.data, c.samples)
	return c.data
}

func (c *xorChunk) writeTime(change int64) {
	u := uint64(change)
	switch {
	case change == 0:
		c.write(0, 1)
	case -1<<13 < change && change <= 1<<13:
		c.write(0b10<<14|u&(1<<14-1), 16)
	case -1<<16 < change && change <= 1<<16:
		c.write(0b110<<17|u&(1<<17-1), 20)
	case -1<<19 < change && change <= 1<<19:
		c.write(0b1110<<20|u&(1<<20-1), 24)
	default:
		c.write(0b1111, 4)
		c.write(u, 64)
	}
}

func (c *xorChunk) writeValue(xor uint64) {
	if xor == 0 {
		c.write(0, 1)
		return
	}
	leading, trailing := min(31, uint(bits.LeadingZeros64(xor))), uint(bits.TrailingZeros64(xor))
	if leading >= c.leading && trailing >= c.trailing {
		c.write(0b10, 2)
		c.write(xor>>c.trailing, 64-c.leading-c.trailing)
		return
	}
	c.leading, c.trailing = leading, trailing
	n := 64 - leading - trailing
	c.write(0b11<<11|uint64(leading)<<6|uint64(n&63), 13)
	c.write(xor>>trailing, n)
}

func (c *xorChunk) writeBytes(b []byte) {
	for _, one := range b {
		c.write(uint64(one), 8)
	}
}

// write adds the lowest n bits of u, 1 to 64; the others are zero.
func (c *xorChunk) write(u uint64, n uint) {
	if n < c.free {
		c.free -= n
		c.word |= u << c.free
		return
	}
	n -= c.free // left for the next word
	c.data = binary.BigEndian.AppendUint64(c.data, c.word|u>>n)
	c.free = 64 - n
	c.word = u << c.free
}
