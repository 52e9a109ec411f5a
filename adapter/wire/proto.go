// Package wire holds the message formats of Prometheus remote write and remote read as pure functions over bytes:
// snappy blocks, the two write messages, the read request, and both response types. It knows nothing of HTTP.
//
// The write messages are walked by hand, because they arrive thousands of times a second and become flat lists anyway.
// What is accepted, and what it means, is what Prometheus's own generated decoders (prompb) say, without exception: a
// body that they refuse is refused here. The read request, being rare, is read by prompb itself.
package wire

import (
	"errors"
	"fmt"
)

// ErrMalformed marks a body that is not what it was announced to be. Sending it again cannot help.
var ErrMalformed = errors.New("malformed body")

// ErrOtherVersion marks a body of remote write in which all fields are those of the other version's message. It is an
// ErrMalformed.
var ErrOtherVersion = fmt.Errorf("%w: it is a message of another version than was announced", ErrMalformed)

// ErrTooLarge marks a body, or an answer, that would need more memory than a limit allows; the text names both.
var ErrTooLarge = errors.New("too large")

// ErrNoMemory says that Decoder.Take had no more memory for a body.
var ErrNoMemory = errors.New("there is no memory left to take the body apart")

// The wire types of protobuf: the low three bits of a field's tag.
const (
	typeVarint   = 0
	typeFixed64  = 1
	typeBytes    = 2
	typeGroup    = 3
	typeEndGroup = 4
	typeFixed32  = 5
)

// The functions below take a message as b[i:] with its end at len(b) and its beginning anywhere, so that positions stay
// those in the whole body. They return the position behind what they read, or bad.
const bad = -1

// uvarint reads up to ten bytes and drops the bits beyond 64, as the generated decoders do.
func uvarint(b []byte, i int) (v uint64, next int) {
	for shift := uint(0); shift < 64; shift += 7 {
		if uint(i) >= uint(len(b)) {
			return 0, bad
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, bad
}

// tag reads a field's number and wire type. A number that no field can have, and an end of a group that never began,
// are bad.
func tag(b []byte, i int) (num int32, typ byte, next int) {
	var v uint64
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		v, next = uint64(b[i]), i+1
	} else {
		v, next = uvarint(b, i)
	}
	num, typ = int32(v>>3), byte(v&7)
	if num <= 0 || typ == typeEndGroup {
		return 0, 0, bad
	}
	return num, typ, next
}

// field reads the length of a length-delimited field and returns where its content begins and ends.
func field(b []byte, i int) (from, to int) {
	var n uint64
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		n, from = uint64(b[i]), i+1
	} else {
		n, from = uvarint(b, i)
	}
	if from < 0 || n > uint64(len(b)-from) {
		return bad, bad
	}
	return from, from + int(n)
}

// skip passes over the value of a field that has no meaning here.
func skip(b []byte, i int, typ byte) (next int) {
	for depth := 0; ; {
		switch typ {
		case typeVarint:
			_, i = uvarint(b, i)
		case typeFixed64:
			i += 8
		case typeBytes:
			_, i = field(b, i)
		case typeFixed32:
			i += 4
		case typeGroup:
			depth++
		case typeEndGroup:
			depth--
		default:
			return bad
		}
		if i < 0 || i > len(b) {
			return bad
		}
		if depth == 0 {
			return i
		}
		v, next := uvarint(b, i)
		if next < 0 {
			return bad
		}
		i, typ = next, byte(v&7)
	}
}

// A shape says how the fields of a message must be encoded, by field number, for messages of which nothing but that is
// checked. Fields that are not in it are passed over.
type shape []fieldShape

type fieldShape struct {
	typ      byte
	repeated bool  // may also be packed: numbers only
	message  shape // of a message: its fields
	known    bool
}

var (
	aVarint   = fieldShape{typ: typeVarint, known: true}
	aDouble   = fieldShape{typ: typeFixed64, known: true}
	aString   = fieldShape{typ: typeBytes, known: true}
	varints   = fieldShape{typ: typeVarint, repeated: true, known: true}
	doubles   = fieldShape{typ: typeFixed64, repeated: true, known: true}
	aLabel    = fieldShape{typ: typeBytes, message: labelShape, known: true}
	someSpans = fieldShape{typ: typeBytes, message: shape{1: aVarint, 2: aVarint}, known: true}

	labelShape      = shape{1: aString, 2: aString}
	sampleShapeV1   = shape{1: aDouble, 2: aVarint}
	sampleShapeV2   = shape{1: aDouble, 2: aVarint, 3: aVarint}
	exemplarShapeV1 = shape{1: aLabel, 2: aDouble, 3: aVarint}
	exemplarShapeV2 = shape{1: varints, 2: aDouble, 3: aVarint}
	metadataShapeV1 = shape{1: aVarint, 2: aString, 4: aString, 5: aString}
	histogramShape  = shape{
		1: aVarint, 2: aDouble, // count
		3: aDouble, 4: aVarint, 5: aDouble, // sum, schema, zero threshold
		6: aVarint, 7: aDouble, // zero count
		8: someSpans, 9: varints, 10: doubles, // negative buckets
		11: someSpans, 12: varints, 13: doubles, // positive buckets
		14: aVarint, 15: aVarint, 16: doubles, // reset hint, timestamp, custom values
	}
	histogramShapeV2 = append(histogramShape[:len(histogramShape):len(histogramShape)], aVarint) // start timestamp
)

// check walks a whole message and refuses what its shape does not allow.
func (s shape) check(b []byte, i int) error {
	for i < len(b) {
		num, typ, next := tag(b, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		if next = s.checkField(b, next, num, typ); next < 0 {
			return malformed(i, fmt.Sprintf("field %d of wire type %d", num, typ))
		}
		i = next
	}
	return nil
}

// checkField passes over the value of one field.
func (s shape) checkField(b []byte, i int, num int32, typ byte) (next int) {
	if int(num) >= len(s) || !s[num].known {
		return skip(b, i, typ)
	}
	f := s[num]
	if typ == f.typ {
		next = skip(b, i, typ)
		if next < 0 || f.message == nil {
			return next
		}
		from, to := field(b, i)
		if f.message.check(b[:to], from) != nil {
			return bad
		}
		return next
	}
	if !f.repeated || typ != typeBytes {
		return bad
	}
	i, to := field(b, i)
	for i >= 0 && i < to {
		i = skip(b, i, f.typ) // the last may run beyond the field, as it may for the generated decoders
	}
	return i
}

func malformed(at int, what string) error {
	return fmt.Errorf("%w: byte %d: %s cannot be read", ErrMalformed, at, what)
}
