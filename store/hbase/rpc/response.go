package rpc

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Response is the server's answer. Its slices are valid until it is released by everybody who holds it: the caller that
// Call returned it to, and once more for each Retain. One that is never released is left to the garbage collector.
type Response struct {
	// Param is the encoded response message.
	Param []byte
	// Cells is the cell block, uncompressed; nil when there is none.
	Cells []byte

	buf   []byte // the frame, or the plain cells of another response
	plain *Response
	home  *sync.Pool // nil: too large to keep
	refs  atomic.Int32
}

// Retain adds a holder. Whoever calls it is one already.
func (r *Response) Retain() { r.refs.Add(1) }

// Release gives the response up; the last holder's call recycles its memory.
func (r *Response) Release() {
	left := r.refs.Add(-1)
	if left > 0 {
		return
	}
	if left < 0 {
		panic("release response: released more often than retained")
	}
	if r.plain != nil {
		r.plain.Release()
	}
	home := r.home
	r.Param, r.Cells, r.plain, r.home = nil, nil, nil, nil
	if home != nil {
		home.Put(r)
	}
}

// size is the number of bytes of the answer.
func (r *Response) size() int {
	if r == nil {
		return 0
	}
	return len(r.Param) + len(r.Cells)
}

// pools recycles buffers of 2^minClass to 2^maxClass bytes by powers of two.
type pools [maxClass - minClass + 1]sync.Pool

const (
	minClass = 12
	maxClass = 23
)

// get returns a response held once whose buf has n bytes.
func (p *pools) get(n int) *Response {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		r := &Response{buf: make([]byte, n)}
		r.refs.Store(1)
		return r
	}
	home := &p[class-minClass]
	r, ok := home.Get().(*Response)
	if !ok {
		r = &Response{buf: make([]byte, 1<<class)}
	}
	r.buf = r.buf[:n]
	r.home = home
	r.refs.Store(1)
	return r
}

// decompress replaces the cells of a response by plain ones.
func (c *Conn) decompress(r *Response) error {
	if c.cfg.Compression == wire.NoCompression || len(r.Cells) == 0 {
		return nil
	}
	plain := c.buffers.get(min(4*len(r.Cells), trusted))
	cells, err := c.cfg.Compression.Decompress(plain.buf[:0], r.Cells, c.cfg.MaxFrame)
	if err != nil {
		plain.Release()
		return err
	}
	if cap(cells) != cap(plain.buf) { // it grew into memory of its own
		plain.home = nil
	}
	plain.buf = cells
	r.plain, r.Cells = plain, cells
	return nil
}
