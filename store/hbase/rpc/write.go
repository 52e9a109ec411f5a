package rpc

import (
	"fmt"
	"net"
	"time"
)

// maxWrite bounds what one gathering write takes up, unless a single request is larger. Together with the WriteTimeout
// it decides which servers are too slow to live with.
const maxWrite = 1 << 20

// maxFlat bounds the buffer that is kept between writes where gathering needs one.
const maxFlat = 4 << 20

// gather is the writer's working memory.
type gather struct {
	calls   []*call
	pieces  net.Buffers
	pending net.Buffers // pieces while they are written; apart because a gathering write eats its slice up
	flat    []byte
}

// write is the goroutine that writes requests.
func (c *Conn) write() {
	var g gather
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		for c.take(&g) {
			n, err := c.send(&g)
			c.wrote(&g, n)
			if err != nil {
				if closed(err) && !c.answered.Load() {
					err = fmt.Errorf("%w (%w)", ErrRefused, err)
				}
				c.fail(err)
				return
			}
		}
	}
}

// take moves calls from the queue to g and reports whether there were any.
func (c *Conn) take(g *gather) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.calls = g.calls[:0]
	size, taken := 0, 0
	for _, k := range c.queue {
		if size > 0 && size+k.size > maxWrite {
			break
		}
		taken++
		if k.state != queued {
			continue // its context has ended
		}
		k.state = writing
		size += k.size
		g.calls = append(g.calls, k)
	}
	rest := copy(c.queue, c.queue[taken:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return len(g.calls) > 0
}

// send writes the calls of g and returns how many bytes the kernel has taken.
func (c *Conn) send(g *gather) (int64, error) {
	g.pieces = g.pieces[:0]
	for _, k := range g.calls {
		g.pieces = append(g.pieces, k.prefix)
		g.pieces = append(g.pieces, k.param...)
		g.pieces = append(g.pieces, k.cells...)
	}
	defer func() { clear(g.pieces) }()
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)); err != nil {
		return 0, err
	}
	if _, gathers := c.nc.(*net.TCPConn); gathers {
		g.pending = g.pieces
		return g.pending.WriteTo(c.nc)
	}
	// TLS and its like would make a record of each piece.
	g.flat = g.flat[:0]
	for _, p := range g.pieces {
		g.flat = append(g.flat, p...)
	}
	n, err := c.nc.Write(g.flat)
	if cap(g.flat) > maxFlat {
		g.flat = nil
	}
	return int64(n), err
}

// wrote gives the calls of g back after n bytes of them were written. The server acts on whole requests only, so one of
// which the last byte was not written has no effect.
func (c *Conn) wrote(g *gather, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range g.calls {
		n -= int64(k.size)
		k.state = written
		if n < 0 {
			k.state = cut
		}
		if k.written != nil {
			close(k.written)
		}
	}
	clear(g.calls)
}
