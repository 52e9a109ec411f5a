package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// ErrMalformed is wrapped by every error of a decoder: the bytes do not follow the format.
var ErrMalformed = errors.New("malformed bytes from the server")

// Reader walks the fields of one protobuf message. After the first fault it is inert: Next returns false, and Err says
// which field of which message was wrong, so that a decoder is a straight loop with one check at its end:
//
//	r := NewReader("ServerName", b)
//	for r.Next() {
//		switch r.Field() {
//		case 1:
//			s.Host = r.String()
//		case 2:
//			s.Port = r.Uint32()
//		}
//	}
//	return r.Err()
//
// Fields that are not asked for are skipped. It allocates only for an error.
type Reader struct {
	message string
	buf     []byte
	pos     int
	field   int
	kind    int
	num     uint64
	bytes   []byte
	err     error
}

// NewReader reads b as one message of the given name; the name is for errors.
func NewReader(message string, b []byte) Reader {
	return Reader{message: message, buf: b}
}

// Next moves to the next field and reports whether there is one. The accessors are about that field.
func (r *Reader) Next() bool {
	if r.err != nil || r.pos == len(r.buf) {
		return false
	}
	tag, ok := r.uvarint()
	if !ok {
		r.fail("tag cut off or too long")
		return false
	}
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		r.fail("bad field number")
		return false
	}
	r.field, r.kind, r.bytes = int(tag>>3), int(tag&7), nil
	return r.value()
}

// value reads what stands behind the tag.
func (r *Reader) value() bool {
	rest := len(r.buf) - r.pos
	switch r.kind {
	case typeVarint:
		n, ok := r.uvarint()
		if !ok {
			return r.fail("varint cut off or too long")
		}
		r.num = n
	case typeBytes:
		n, ok := r.uvarint()
		if !ok {
			return r.fail("length cut off or too long")
		}
		if n > uint64(len(r.buf)-r.pos) {
			return r.fail("field is longer than the message")
		}
		r.bytes = r.buf[r.pos : r.pos+int(n) : r.pos+int(n)]
		r.pos += int(n)
	case typeFixed64:
		if rest < 8 {
			return r.fail("fixed64 cut off")
		}
		r.num = binary.LittleEndian.Uint64(r.buf[r.pos:])
		r.pos += 8
	case typeFixed32:
		if rest < 4 {
			return r.fail("fixed32 cut off")
		}
		r.num = uint64(binary.LittleEndian.Uint32(r.buf[r.pos:]))
		r.pos += 4
	default:
		return r.fail("unknown wire type")
	}
	return true
}

// Field is the number of the field Next stopped at.
func (r *Reader) Field() int { return r.field }

// Uint64 is the value of a varint or fixed field.
func (r *Reader) Uint64() uint64 {
	if r.kind == typeBytes {
		r.fail("bytes where a number belongs")
		return 0
	}
	return r.num
}

// Uint32 is Uint64 cut to 32 bits, as protobuf asks of a reader; it also reads int32 and enums.
func (r *Reader) Uint32() uint32 { return uint32(r.Uint64()) }

// Int is the value of a field that counts something: 0 to 2^31-1. Anything else makes the reader inert.
func (r *Reader) Int() int {
	n := r.Uint64()
	if n > 1<<31-1 {
		r.fail("number out of range")
		return 0
	}
	return int(n)
}

// Bool is the value of a bool field.
func (r *Reader) Bool() bool { return r.Uint64() != 0 }

// Bytes is the content of a field of bytes, a string or an embedded message; it points into the message.
func (r *Reader) Bytes() []byte {
	if r.kind != typeBytes {
		r.fail("a number where bytes belong")
		return nil
	}
	return r.bytes
}

// String is Bytes as a string of its own.
func (r *Reader) String() string { return string(r.Bytes()) }

// repeated gives the values of a repeated number: the field's one, or all of a packed one.
func (r *Reader) repeated() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if r.kind != typeBytes {
			yield(r.num)
			return
		}
		for b := r.bytes; len(b) > 0; {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				r.fail("packed varint cut off or too long")
				return
			}
			if !yield(v) {
				return
			}
			b = b[n:]
		}
	}
}

// Embed takes the error of parsing an embedded message: a fault there is one of this message too.
func (r *Reader) Embed(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s field %d: %w", r.message, r.field, err)
	}
}

// Err is nil when everything read so far was well formed.
func (r *Reader) Err() error { return r.err }

// Require makes the absence of a required field an error, unless there is an earlier one.
func (r *Reader) Require(present bool, field string) {
	if !present && r.err == nil {
		r.err = fmt.Errorf("parse %s: %w: %s is missing", r.message, ErrMalformed, field)
	}
}

func (r *Reader) fail(what string) bool {
	if r.err == nil {
		r.err = fmt.Errorf("parse %s: %w: %s (field %d, byte %d of %d)",
			r.message, ErrMalformed, what, r.field, r.pos, len(r.buf))
	}
	return false
}

// uvarint reads a varint of at most 64 bits at pos.
func (r *Reader) uvarint() (uint64, bool) {
	if r.pos < len(r.buf) && r.buf[r.pos] < 0x80 {
		r.pos++
		return uint64(r.buf[r.pos-1]), true
	}
	v, n := binary.Uvarint(r.buf[r.pos:])
	if n <= 0 {
		return 0, false
	}
	r.pos += n
	return v, true
}

// TakeDelimited splits a length-prefixed message off the front of b, as the parts of a frame stand.
func TakeDelimited(b []byte) (message, rest []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 {
		return nil, nil, fmt.Errorf("take delimited message: %w: length cut off or too long", ErrMalformed)
	}
	if n > uint64(len(b)-k) {
		return nil, nil, fmt.Errorf("take delimited message: %w: length %d, but %d bytes follow", ErrMalformed, n,
			len(b)-k)
	}
	end := k + int(n)
	return b[k:end:end], b[end:], nil
}
