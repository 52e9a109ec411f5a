package wire_test

import (
	"encoding/binary"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// Random messages, down to the bytes: known fields in any order, with any wire type now and then, unknown ones, groups,
// lengths in more bytes than needed, and a byte changed or cut here and there.
type builder struct{ t *rapid.T }

func (b builder) one(n int) bool { return rapid.IntRange(0, n-1).Draw(b.t, "chance") == 0 }

func (b builder) uvarint(dst []byte, v uint64) []byte {
	dst = binary.AppendUvarint(dst, v)
	if b.one(30) {
		for range rapid.IntRange(1, 9).Draw(b.t, "padding") {
			dst[len(dst)-1] |= 0x80
			dst = append(dst, byte(rapid.IntRange(0, 3).Draw(b.t, "pad")&1*2))
		}
	}
	return dst
}

func (b builder) field(dst []byte, num, typ int, content []byte) []byte {
	if b.one(200) {
		typ = rapid.IntRange(0, 7).Draw(b.t, "type")
	}
	dst = b.uvarint(dst, uint64(num<<3|typ))
	if typ == 2 {
		dst = b.uvarint(dst, uint64(len(content)))
	}
	return append(dst, content...)
}

func (b builder) number(dst []byte, num int) []byte {
	v := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Just(uint64(1_700_000_000_000)), rapid.Uint64()).Draw(b.t, "number")
	return b.field(dst, num, 0, b.uvarint(nil, v))
}

func (b builder) double(dst []byte, num int) []byte {
	v := rapid.OneOf(rapid.Just(uint64(1)<<63), rapid.Just(uint64(0x7ff0000000000002)), rapid.Uint64()).Draw(b.t, "bits")
	return b.field(dst, num, 1, binary.LittleEndian.AppendUint64(nil, v))
}

func (b builder) text(dst []byte, num int) []byte {
	s := rapid.OneOf(rapid.SampledFrom([]string{"", "__name__", "job", "up", strings.Repeat("x", 130)}), rapid.String())
	return b.field(dst, num, 2, []byte(s.Draw(b.t, "text")))
}

func (b builder) packed(dst []byte, num int, element func([]byte) []byte) []byte {
	var content []byte
	for range rapid.IntRange(0, 4).Draw(b.t, "packed") {
		content = element(content)
	}
	return b.field(dst, num, 2, content)
}

func (b builder) unknown(dst []byte, num, depth int) []byte {
	switch typ := rapid.IntRange(0, 5).Draw(b.t, "unknown"); typ {
	case 0:
		return b.number(dst, num)
	case 1:
		return b.double(dst, num)
	case 3:
		dst = b.uvarint(dst, uint64(num<<3|3))
		for range rapid.IntRange(0, 2).Draw(b.t, "grouped") {
			if depth < 3 {
				dst = b.unknown(dst, num+1, depth+1)
			}
		}
		return b.uvarint(dst, uint64(num<<3|4))
	case 5:
		return append(b.uvarint(dst, uint64(num<<3|5)), 1, 2, 3, 4)
	default:
		return b.text(dst, num)
	}
}

// message draws up to max fields; the fields of a message are tried in order, or in any order.
func (b builder) message(max int, fields ...func([]byte) []byte) []byte {
	var dst []byte
	inOrder := !b.one(4)
	if inOrder {
		for _, f := range fields {
			for range rapid.SampledFrom([]int{1, 1, 1, 1, 0, max}).Draw(b.t, "times") {
				dst = f(dst)
			}
		}
	} else {
		for range rapid.IntRange(0, 2*max).Draw(b.t, "fields") {
			dst = rapid.SampledFrom(fields).Draw(b.t, "field")(dst)
		}
	}
	if b.one(12) {
		dst = b.unknown(dst, rapid.SampledFrom([]int{7, 20, 100, 1 << 20}).Draw(b.t, "unknown number"), 0)
	}
	return dst
}

func (b builder) num(num int) func([]byte) []byte {
	return func(dst []byte) []byte { return b.number(dst, num) }
}

func (b builder) dbl(num int) func([]byte) []byte {
	return func(dst []byte) []byte { return b.double(dst, num) }
}

func (b builder) str(num int) func([]byte) []byte {
	return func(dst []byte) []byte { return b.text(dst, num) }
}

func (b builder) sub(num, max int, fields ...func([]byte) []byte) func([]byte) []byte {
	return func(dst []byte) []byte { return b.field(dst, num, 2, b.message(max, fields...)) }
}

func (b builder) refs(num int) func([]byte) []byte {
	ref := func(dst []byte) []byte {
		return b.uvarint(dst, rapid.SampledFrom([]uint64{0, 0, 1, 2, 3, 1 << 40}).Draw(b.t, "ref"))
	}
	return func(dst []byte) []byte {
		if b.one(5) {
			return b.field(dst, num, 0, ref(nil))
		}
		return b.packed(dst, num, func(dst []byte) []byte { return ref(ref(dst)) })
	}
}

func (b builder) histogram(num int) func([]byte) []byte {
	varints := func(num int) func([]byte) []byte {
		return func(dst []byte) []byte {
			return b.packed(dst, num, func(dst []byte) []byte { return b.uvarint(dst, 3) })
		}
	}
	doubles := func(num int) func([]byte) []byte {
		return func(dst []byte) []byte {
			return b.packed(dst, num, func(dst []byte) []byte { return append(dst, 1, 2, 3, 4, 5, 6, 7, 8) })
		}
	}
	span := func(num int) func([]byte) []byte { return b.sub(num, 1, b.num(1), b.num(2)) }
	return b.sub(num, 1, b.num(1), b.dbl(2), b.dbl(3), b.num(4), b.dbl(5), b.num(6), b.dbl(7), span(8), varints(9),
		doubles(10), span(11), varints(12), doubles(13), b.num(14), b.num(15), doubles(16), b.num(17), b.num(12), b.dbl(13))
}

func (b builder) damage(body []byte) []byte {
	if len(body) == 0 || !b.one(4) {
		return body
	}
	at := rapid.IntRange(0, len(body)-1).Draw(b.t, "damage")
	switch rapid.IntRange(0, 2).Draw(b.t, "kind of damage") {
	case 0:
		return body[:at]
	case 1:
		body[at] ^= 1 << rapid.IntRange(0, 7).Draw(b.t, "bit")
	default:
		body = slices.Delete(body, at, at+1)
	}
	return body
}

func (b builder) bodyV1() []byte {
	label := func(num int) func([]byte) []byte { return b.sub(num, 1, b.str(1), b.str(2)) }
	sample := b.sub(2, 1, b.dbl(1), b.num(2))
	exemplar := b.sub(3, 1, label(1), b.dbl(2), b.num(3))
	ts := b.sub(1, 3, label(1), label(1), sample, exemplar, b.histogram(4))
	plain := b.sub(1, 2, label(1), label(1), label(1), sample)
	return b.damage(b.message(3, ts, plain, b.sub(3, 1, b.num(1), b.str(2), b.str(4), b.str(5))))
}

func (b builder) bodyV2() []byte {
	sample := b.sub(2, 1, b.dbl(1), b.num(2), b.num(3))
	exemplar := b.sub(4, 1, b.refs(1), b.dbl(2), b.num(3))
	metadata := b.sub(5, 1, b.num(1), b.num(3), b.num(4))
	ts := b.sub(5, 2, b.refs(1), sample, exemplar, metadata)
	hs := b.sub(5, 2, b.refs(1), b.histogram(3), exemplar, metadata, b.num(6))
	both := b.sub(5, 2, b.refs(1), sample, b.histogram(3))
	empty := func(dst []byte) []byte { return append(dst, 0x22, 0) }
	return b.damage(b.message(3, empty, b.str(4), b.str(4), b.str(4), ts, ts, hs, both))
}
