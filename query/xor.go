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
	data    [maxXORBytes]byte
	at      int    // data[:at] is written
	word    uint64 // bits that are not written yet, from the highest on; those below are zero
	used    uint   // how many, 7 at most
	samples uint16 // MaxChunkSamples at most

	t, delta          int64
	v                 uint64
	leading, trailing uint // the bounds; none yet if their sum is above 64
}

const (
	// maxXORBits bounds what a sample takes: 68 bits of time, or 80 of that of the first two, 13 before the value, and the
	// value.
	maxXORBits = 80 + 13 + 64
	// maxXORBytes is a word more than a chunk takes, since bits are written by the word.
	maxXORBytes = 2 + (MaxChunkSamples*maxXORBits+7)/8 + 8
)

// reset begins an empty chunk.
func (c *xorChunk) reset() {
	c.at, c.word, c.used, c.samples = 2, 0, 0, 0
	c.t, c.delta, c.v, c.leading, c.trailing = 0, 0, 0, 65, 0
}

// append adds samples, MaxChunkSamples to a chunk at most.
func (c *xorChunk) append(ts []int64, vs []float64) {
	for len(ts) > 0 && c.samples < 2 {
		c.begin(ts[0], math.Float64bits(vs[0]))
		ts, vs = ts[1:], vs[1:]
	}
	c.samples += uint16(len(ts))
	vs = vs[:len(ts)]
	// What each sample reads and writes is kept out of memory meanwhile.
	b := bitWriter{c.at, c.word, c.used}
	data, last, step, before, leading, trailing := &c.data, c.t, c.delta, c.v, c.leading, c.trailing
	for i, t := range ts {
		delta, v := t-last, math.Float64bits(vs[i])
		change, xor := delta-step, v^before
		last, step, before = t, delta, v
		head, n := uint64(0), uint(1) // the time, and the value but for its bits
		if change != 0 {
			if head, n = timeBits(change); n > 24 {
				b.writeWord(data, 0b1111, 4)
				b.writeWord(data, head, 64)
				head, n = 0, 0
			}
		}
		if xor == 0 {
			b.write(data, head<<1, n+1)
			continue
		}
		front, back := min(31, uint(bits.LeadingZeros64(xor))), uint(bits.TrailingZeros64(xor))
		if front >= leading && back >= trailing {
			head, n = head<<2|0b10, n+2
		} else {
			leading, trailing = front, back
			head, n = head<<13|0b11<<11|uint64(front)<<6|uint64(64-front-back)&63, n+13
		}
		size := 64 - leading - trailing
		xor >>= trailing & 63
		if n+size <= maxWrite {
			b.write(data, head<<(size&63)|xor, n+size)
			continue
		}
		b.write(data, head, n)
		if size <= maxWrite {
			b.write(data, xor, size)
		} else {
			b.writeWord(data, xor, size)
		}
	}
	c.at, c.word, c.used = b.at, b.word, b.used
	c.t, c.delta, c.v, c.leading, c.trailing = last, step, before, leading, trailing
}

// begin adds one of the first two samples.
func (c *xorChunk) begin(t int64, v uint64) {
	if c.samples == 0 {
		c.at += binary.PutVarint(c.data[c.at:], t)
		binary.BigEndian.PutUint64(c.data[c.at:], v)
		c.at += 8
	} else {
		c.delta = t - c.t
		c.at += binary.PutUvarint(c.data[c.at:], uint64(c.delta))
		b := bitWriter{c.at, c.word, c.used}
		if xor := v ^ c.v; xor == 0 {
			b.write(&c.data, 0, 1)
		} else {
			c.leading, c.trailing = min(31, uint(bits.LeadingZeros64(xor))), uint(bits.TrailingZeros64(xor))
			size := 64 - c.leading - c.trailing
			b.write(&c.data, 0b11<<11|uint64(c.leading)<<6|uint64(size&63), 13)
			b.writeWord(&c.data, xor>>c.trailing, size)
		}
		c.at, c.word, c.used = b.at, b.word, b.used
	}
	c.t, c.v = t, v
	c.samples++
}

// bytes is the whole chunk. Nothing may be added after it.
func (c *xorChunk) bytes() []byte {
	binary.BigEndian.PutUint64(c.data[c.at:], c.word)
	binary.BigEndian.PutUint16(c.data[:], c.samples)
	return c.data[:c.at+int(c.used+7)/8]
}

// timeBits is the code of a change that is not 0, and its length. Of one of 68 bits, length and code are without the
// first 4.
func timeBits(change int64) (code uint64, n uint) {
	u := uint64(change)
	switch {
	case -1<<13 < change && change <= 1<<13:
		return 0b10<<14 | u&(1<<14-1), 16
	case -1<<16 < change && change <= 1<<16:
		return 0b110<<17 | u&(1<<17-1), 20
	case -1<<19 < change && change <= 1<<19:
		return 0b1110<<20 | u&(1<<20-1), 24
	default:
		return u, 64
	}
}

// bitWriter is the place in a chunk's data where bits are written.
type bitWriter struct {
	at   int
	word uint64
	used uint
}

// maxWrite is how many bits are written at a time: with 7 that are left from before, less than a word.
const maxWrite = 56

// write adds the lowest n bits of u, maxWrite at most; the others are zero.
func (b *bitWriter) write(data *[maxXORBytes]byte, u uint64, n uint) {
	b.word |= u << ((64 - b.used - n) & 63)
	binary.BigEndian.PutUint64(data[b.at:], b.word)
	b.used += n
	b.at += int(b.used / 8)
	b.word <<= b.used & 0x38
	b.used &= 7
}

// writeWord adds the lowest n bits of u, 1 to 64; the others are zero.
func (b *bitWriter) writeWord(data *[maxXORBytes]byte, u uint64, n uint) {
	if n > 32 {
		b.write(data, u>>32, n-32)
		u, n = u&math.MaxUint32, 32
	}
	b.write(data, u, n)
}
