package pack

import (
	"encoding/binary"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
)

// reader takes a packed cell apart from its beginning. After the first error it gives zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: packed cell has %s, %d bytes before its end", mapping.ErrCorrupt, what, len(r.rest))
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("a byte missing")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("no number where one should be")
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

// length reads a number of at most limit.
func (r *reader) length(limit int) int {
	x := r.uvarint()
	if x > uint64(limit) {
		r.fail("a number beyond its limit")
		return 0
	}
	return int(x)
}

// take reads n bytes.
func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.fail("bytes missing")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
