package rpc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

const (
	readBuffer = 64 << 10
	// trusted is the size up to which a frame's buffer is made before its bytes come; beyond, it grows with them, so
	// that garbage where a length belongs costs no memory.
	trusted = 4 << 20
)

// read is the goroutine that reads responses.
func (c *Conn) read() {
	r := bufio.NewReaderSize((*stamped)(c), readBuffer)
	for {
		response, err := c.readFrame(r)
		if err != nil {
			c.fail(c.explain(err))
			return
		}
		if err := c.dispatch(response); err != nil {
			response.Release()
			c.fail(c.explain(err))
			return
		}
	}
}

// stamped is a Conn as a reader that notes when bytes come.
type stamped Conn

func (s *stamped) Read(p []byte) (int, error) {
	n, err := s.nc.Read(p)
	if n > 0 {
		c := (*Conn)(s)
		c.received.Store(c.sinceStart())
	}
	return n, err
}

// readFrame reads one frame without its total.
func (c *Conn) readFrame(r *bufio.Reader) (*Response, error) {
	total, err := r.Peek(wire.FrameLength)
	if err != nil {
		if len(total) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	c.framing.Store(c.received.Load())
	defer c.framing.Store(0)
	if !c.answered.Load() {
		said, _ := r.Peek(min(r.Buffered(), shownGreeting))
		c.greeting = append(c.greeting[:0], said...)
	}
	n := int64(binary.BigEndian.Uint32(total))
	if n > int64(c.cfg.MaxFrame) {
		return nil, fmt.Errorf("read frame: %w: %d bytes announced, %d are allowed", wire.ErrMalformed, n,
			c.cfg.MaxFrame)
	}
	if _, err := r.Discard(wire.FrameLength); err != nil {
		return nil, err
	}
	response := c.buffers.get(int(min(n, trusted)))
	for have := 0; ; {
		if _, err := io.ReadFull(r, response.buf[have:]); err != nil {
			response.Release()
			return nil, io.ErrUnexpectedEOF
		}
		have = len(response.buf)
		if have == int(n) {
			return response, nil
		}
		longer := make([]byte, min(int(n), 2*have))
		copy(longer, response.buf)
		response.buf, response.home = longer, nil
	}
}

// dispatch hands a response to its call. An error means that the connection is of no use any more.
func (c *Conn) dispatch(response *Response) error {
	header, param, cells, err := wire.ParseResponse(response.buf)
	if err != nil {
		return err
	}
	if header.CallID == wire.NoCall {
		if header.Exception != nil {
			return fmt.Errorf("server ended the connection: %w", header.Exception)
		}
		return fmt.Errorf("read response: %w: no call id", wire.ErrMalformed)
	}
	c.answered.Store(true)

	c.mu.Lock()
	k := c.calls[header.CallID]
	delete(c.calls, header.CallID)
	c.mu.Unlock()
	if k == nil { // its context has ended
		response.Release()
		return nil
	}
	if header.Exception != nil {
		response.Release()
		k.outcome <- outcome{err: header.Exception}
		return nil
	}
	response.Param, response.Cells = param, cells
	k.outcome <- outcome{response: response}
	return nil
}

// shownGreeting is how many bytes of a server that is none of HBase's its error shows.
const shownGreeting = 40

// explain adds to the end of a connection what it probably means.
func (c *Conn) explain(err error) error {
	var exception *wire.Exception
	switch {
	case errors.As(err, &exception):
		return err
	case !c.answered.Load() && errors.Is(err, wire.ErrMalformed):
		// An alert is what a server of TLS says to those who begin without.
		if c.cfg.TLS == nil && len(c.greeting) > 1 && c.greeting[0] == tlsAlert && c.greeting[1] == tlsMajor {
			return fmt.Errorf("%w without TLS: it speaks TLS (%w)", ErrNotHBase, err)
		}
		return fmt.Errorf("%w: it says %q (%w)", ErrNotHBase, c.greeting, err)
	case !c.answered.Load() && closed(err):
		return fmt.Errorf("%w (%w)", ErrRefused, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("server closed the connection: %w", io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("read response: %w", err)
	}
}

// The first bytes of an alert of TLS.
const (
	tlsAlert = 21
	tlsMajor = 3
)

// closed tells whether an error is that the other side has ended the connection.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
