package wire

import (
	"fmt"

	"github.com/klauspost/compress/s2"
)

// InflatedSize is the size that a snappy block (not a framed stream) says it has when inflated. A size that no block of
// this length can reach is ErrMalformed: nothing densifies better than a copy of 64 bytes told in three.
func InflatedSize(block []byte) (int, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return 0, fmt.Errorf("%w: snappy block of %d bytes: %w", ErrMalformed, len(block), err)
	}
	if uint64(n)*3 > uint64(len(block))*64 {
		return 0, fmt.Errorf("%w: snappy block of %d bytes claims %d bytes of content", ErrMalformed, len(block), n)
	}
	return n, nil
}

// Inflate inflates a snappy block into the memory of buf, or into new memory if buf has too little, and returns the
// content. A block that claims more than limit bytes is ErrTooLarge, before any memory is taken for it.
func Inflate(buf, block []byte, limit int) ([]byte, error) {
	n, err := InflatedSize(block)
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%w: snappy block inflates to %d bytes, more than the %d allowed", ErrTooLarge, n, limit)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	// The s2 package inflates snappy at three quarters of the cost. It also takes the repeat code of its own dialect,
	// which no sender of snappy writes; what that means is defined, so that it is harmless.
	content, err := s2.Decode(buf[:n], block)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy block of %d bytes: %w", ErrMalformed, len(block), err)
	}
	return content, nil
}

// Deflate compresses content into one snappy block, into the memory of buf or new memory. The content must be below
// 4 GiB.
func Deflate(buf, content []byte) []byte {
	return s2.EncodeSnappy(buf[:cap(buf)], content)
}
