package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Request is one call. The pieces of its parts are written one behind the other, straight from where they lie: nothing
// may change them until Call has returned.
type Request struct {
	// Method of the service, "Multi" say.
	Method string
	// Param is the encoded request message in any number of pieces.
	Param [][]byte
	// Cells is the cell block in any number of pieces, uncompressed; each piece holds whole cells.
	Cells [][]byte
	// Priority is the server's queue for the call. Default: the server chooses.
	Priority uint32
	// Deadline ends the call as the end of its context does, for less than a context of its own. Default: none.
	Deadline time.Time
}

// maxRequest bounds a request where the protocol does; servers refuse much smaller ones (hbase.ipc.max.request.size).
const maxRequest = 1<<31 - 1

// call is a request on its way. It is used again for another one when nobody else can touch it any more: see recycle.
type call struct {
	header wire.RequestHeader
	prefix []byte // the frame up to the param
	param  [][]byte
	cells  [][]byte
	size   int // bytes of the whole frame

	outcome chan outcome // gets exactly one value, unless the call was forgotten
	timer   *time.Timer  // for the deadline of the request; nil until one has had one

	// Guarded by Conn.mu.
	state   state
	written chan struct{} // closed by the writer when it is done with the pieces; nil when nobody waits for that
}

type state uint8

const (
	queued  state = iota // the writer has not looked at it
	writing              // the writer may be reading its pieces
	cut                  // the writer is done with it, and the server cannot have all of it
	written              // the server may have all of it
)

type outcome struct {
	response *Response
	err      error
}

// Call sends a request and waits for its response, which the caller releases. An error is an *Error: it wraps a
// *wire.Exception when the server answered with one, or what else happened, and tells whether the request may have been
// received.
//
// The deadline, that of ctx or of the request, is sent along, so that the server drops what nobody waits for. A call
// whose context or time ends is forgotten: it returns at once or, when it is just being written, within a
// second, after which the connection is broken; its late response is dropped.
func (c *Conn) Call(ctx context.Context, req *Request) (*Response, error) {
	start := time.Now()
	size := length(req.Param) + length(req.Cells)
	c.cfg.Observer.Started(req.Method, size)
	response, sent, err := c.call(ctx, req)
	if err != nil {
		err = &Error{Addr: c.cfg.Addr, Method: req.Method, Sent: sent, Err: err}
	}
	c.cfg.Observer.Finished(req.Method, time.Since(start), response.size(), err)
	return response, err
}

// CallMessage is Call for a request that is one message without cells.
func (c *Conn) CallMessage(ctx context.Context, method string, param wire.Message) (*Response, error) {
	return c.Call(ctx, &Request{Method: method, Param: [][]byte{param.AppendTo(nil)}})
}

func (c *Conn) call(ctx context.Context, req *Request) (response *Response, sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	k, ok := c.idle.Get().(*call)
	if !ok {
		k = &call{outcome: make(chan outcome, 1)}
	}
	k.param, k.cells = req.Param, req.Cells
	if c.cfg.Compression != wire.NoCompression && len(req.Cells) > 0 {
		block, err := c.cfg.Compression.Compress(nil, req.Cells...)
		if err != nil {
			return nil, false, err
		}
		k.cells = [][]byte{block}
	}
	if err := c.enqueue(ctx, k, req); err != nil {
		return nil, false, err
	}
	var expired <-chan time.Time
	if !req.Deadline.IsZero() {
		expired = k.expire(time.Until(req.Deadline))
	}
	select {
	case out := <-k.outcome:
		return c.finish(k, out)
	case <-ctx.Done():
		return c.abandon(k, ctx.Err())
	case <-expired:
		return c.abandon(k, context.DeadlineExceeded)
	}
}

// expire sets the call's timer, whose channel it returns.
func (k *call) expire(after time.Duration) <-chan time.Time {
	if k.timer == nil {
		k.timer = time.NewTimer(after)
	} else {
		k.timer.Reset(after)
	}
	return k.timer.C
}

// enqueue gives the call an id and hands it to the writer.
func (c *Conn) enqueue(ctx context.Context, k *call, req *Request) error {
	param, cells := length(k.param), length(k.cells)
	k.header = wire.RequestHeader{Method: req.Method, CellBlock: cells, Priority: req.Priority}
	deadline := req.Deadline
	if d, ok := ctx.Deadline(); ok && (deadline.IsZero() || d.Before(deadline)) {
		deadline = d
	}
	if !deadline.IsZero() {
		// At least 1: a deadline that has just passed must not read as none.
		k.header.Timeout = uint32(min(max(time.Until(deadline).Milliseconds(), 1), 1<<31-1))
	}
	if param+cells > maxRequest-1<<10 {
		return fmt.Errorf("request of %d bytes is beyond what a frame can hold", param+cells)
	}

	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	k.header.CallID, k.state = c.newID(), queued
	k.prefix = wire.AppendRequestPrefix(k.prefix[:0], &k.header, param)
	k.size = len(k.prefix) + param + cells
	c.calls[k.header.CallID] = k
	if c.asked <= c.received.Load() {
		c.asked = c.sinceStart()
	}
	c.queue = append(c.queue, k)
	c.mu.Unlock()

	select {
	case c.wake <- struct{}{}:
	default: // the token that is there will do
	}
	return nil
}

// newID is the next call id that no call in flight has.
func (c *Conn) newID() uint32 {
	for {
		c.lastID = (c.lastID + 1) & wire.MaxCallID
		if c.calls[c.lastID] == nil {
			return c.lastID
		}
	}
}

// finish makes the result of a call from its outcome.
func (c *Conn) finish(k *call, out outcome) (response *Response, sent bool, err error) {
	sent = c.awaitWritten(k)
	if out.err != nil {
		return nil, sent, out.err
	}
	if !sent {
		out.response.Release()
		err := fmt.Errorf("read response: %w: it answers a request that was not sent", wire.ErrMalformed)
		c.fail(err)
		return nil, false, err
	}
	c.recycle(k)
	if err := c.decompress(out.response); err != nil {
		out.response.Release()
		return nil, true, err
	}
	return out.response, true, nil
}

// recycle keeps a call that has got its response for another one: reader and writer have let go of it. Calls that end
// in any other way are left to the garbage collector.
func (c *Conn) recycle(k *call) {
	if k.timer != nil {
		k.timer.Stop()
	}
	k.param, k.cells, k.written = nil, nil, nil
	c.idle.Put(k)
}

// abandon forgets a call whose context or time has ended, unless its outcome came first.
func (c *Conn) abandon(k *call, reason error) (response *Response, sent bool, err error) {
	c.mu.Lock()
	waiting := c.calls[k.header.CallID] == k
	if waiting {
		delete(c.calls, k.header.CallID)
	}
	c.mu.Unlock()
	if !waiting {
		return c.finish(k, <-k.outcome) // it is on its way to the channel
	}
	sent = c.awaitWritten(k)
	if err := c.stalled(); sent && err != nil {
		c.fail(err)
	}
	return nil, sent, reason
}

// writeGrace bounds the wait for the end of a write by somebody whose context has ended. They cannot let go of the
// pieces before, and the connection cannot do without them.
const writeGrace = time.Second

// awaitWritten waits until the writer has no use for the pieces of a call any more, and reports whether the server may
// have the whole request.
func (c *Conn) awaitWritten(k *call) (sent bool) {
	c.mu.Lock()
	switch k.state {
	case queued:
		k.state = cut // the writer passes over it
	case writing:
		k.written = make(chan struct{})
		c.mu.Unlock()
		select {
		case <-k.written:
		case <-time.After(writeGrace):
			c.fail(fmt.Errorf("server has not taken a request for %v after the caller gave up", writeGrace))
			<-k.written
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	return k.state == written
}

// stalled says why it is useless to wait for answers any longer, nil if it is not: none came although calls waited, one
// after the other, or one does not end, be it that its length is wrong.
func (c *Conn) stalled() error {
	c.mu.Lock()
	asked := c.asked
	c.mu.Unlock()
	now, began := c.sinceStart(), c.framing.Load()
	if silent := time.Duration(now - max(c.received.Load(), asked)); silent >= c.cfg.StallTimeout {
		return fmt.Errorf("server was silent for %v while a call waited", silent.Round(time.Millisecond))
	}
	if long := time.Duration(now - began); began > 0 && long >= c.cfg.StallTimeout {
		return fmt.Errorf("a response has not come whole for %v while a call waited", long.Round(time.Millisecond))
	}
	return nil
}

func length(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}
