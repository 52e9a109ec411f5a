package wire

import "encoding/binary"

// Wire types of protocol buffers. Groups (3, 4) do not occur in HBase's messages.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

// Message is anything with an encoding.
type Message interface {
	// AppendTo appends the encoded message, without a length in front, and returns the extended slice.
	AppendTo(dst []byte) []byte
}

// AppendUintField appends a varint field: uint32, uint64, a non-negative int32 or int64, or an enum.
func AppendUintField(dst []byte, field int, v uint64) []byte {
	dst = appendTag(dst, field, typeVarint)
	return binary.AppendUvarint(dst, v)
}

// AppendBoolField appends a bool field, whatever its value.
func AppendBoolField(dst []byte, field int, v bool) []byte {
	var n uint64
	if v {
		n = 1
	}
	return AppendUintField(dst, field, n)
}

// AppendBytesField appends a field of bytes, even when v is empty. A string is passed as it is.
func AppendBytesField[T []byte | string](dst []byte, field int, v T) []byte {
	dst = appendTag(dst, field, typeBytes)
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	return append(dst, v...)
}

// AppendMessageField appends an embedded message.
func AppendMessageField(dst []byte, field int, m Message) []byte {
	dst, at := BeginMessage(dst, field)
	return EndMessage(m.AppendTo(dst), at)
}

// BeginMessage opens an embedded message whose fields follow on dst; EndMessage with the returned mark closes it.
func BeginMessage(dst []byte, field int) ([]byte, int) {
	dst = append(appendTag(dst, field, typeBytes), 0)
	return dst, len(dst)
}

// EndMessage closes the message that BeginMessage opened at mark. Its length was given one byte; a longer one moves the
// content, which is cheaper than a second pass over every message to learn the sizes.
func EndMessage(dst []byte, mark int) []byte {
	n := len(dst) - mark
	if n < 0x80 {
		dst[mark-1] = byte(n)
		return dst
	}
	var length [binary.MaxVarintLen64]byte
	extra := binary.PutUvarint(length[:], uint64(n)) - 1
	dst = append(dst, length[:extra]...) // any bytes: only room is wanted
	copy(dst[mark+extra:], dst[mark:mark+n])
	copy(dst[mark-1:], length[:extra+1])
	return dst
}

// AppendDelimited appends the message with its length in front, as the parts of a frame are written.
func AppendDelimited(dst []byte, m Message) []byte {
	dst = append(dst, 0)
	mark := len(dst)
	return EndMessage(m.AppendTo(dst), mark)
}

// uvarintLen is the number of bytes of v as a varint.
func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func appendTag(dst []byte, field, wireType int) []byte {
	if field < 16 {
		return append(dst, byte(field<<3|wireType))
	}
	return binary.AppendUvarint(dst, uint64(field)<<3|uint64(wireType))
}
