package client_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// An edit of a conversation is six bytes of the fuzzer's:
//
//	| which answer, of all | part and verb | offset 2 | length | value |
//
// The part is the message of the answer, its cells, or the whole frame; for those two frame and header are made to fit.
type mangler struct {
	edits []byte
	mu    sync.Mutex // guards n
	n     byte       // answers so far
}

const editSize = 6

// frame makes an answer's bytes, with the edits that are meant for it.
func (m *mangler) frame(dst []byte, h wire.ResponseHeader, result, cells []byte) []byte {
	m.mu.Lock()
	n := m.n
	m.n++
	m.mu.Unlock()
	edit := func(part byte, b []byte) []byte {
		for e := m.edits; len(e) >= editSize; e = e[editSize:] {
			if e[0] == n && e[1]%4 == part {
				b = mangle(b, e[1]/4%4, int(e[2])<<8|int(e[3]), int(e[4]), e[5])
			}
		}
		return b
	}
	for e := m.edits; len(e) >= editSize; e = e[editSize:] {
		if e[0] == n && e[1]%4 == 3 { // the header
			h.CallID += uint32(e[2])
			if classes := mangledClasses(); e[3] > 0 {
				h.Exception = exception(classes[int(e[3])%len(classes)])
				h.Exception.DoNotRetry = e[4]%2 > 0
			}
		}
	}
	return edit(2, wire.AppendResponse(dst, h, edit(0, result), edit(1, cells)))
}

// mangle makes one edit of b.
func mangle(b []byte, verb byte, at, n int, value byte) []byte {
	if len(b) == 0 {
		return b
	}
	at %= len(b)
	end := min(at+n, len(b))
	b = bytes.Clone(b)
	switch verb {
	case 0:
		b[at] ^= value
		return b
	case 1: // cut out
		return append(b[:at], b[end:]...)
	case 2: // put in
		return append(b[:at:at], append(bytes.Repeat([]byte{value}, n), b[at:]...)...)
	default: // double
		return append(b[:end:end], b[at:]...)
	}
}

func mangledClasses() []string {
	return []string{
		"NotServingRegionException", "exceptions.RegionMovedException", "exceptions.RequestTooBigException",
		"UnknownScannerException", "MultiActionResultTooLarge", "quotas.RpcThrottlingException", "DoNotRetryIOException",
		"PleaseHoldException", "", "TableNotFoundException",
	}
}

// memory is a listener of connections within this process.
type memory struct {
	port  int
	conns chan net.Conn
	done  chan struct{} // closed by Close
}

func (l *memory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memory) Close() error {
	close(l.done)
	return nil
}

func (l *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// dialMemory connects to the listener of an address.
func dialMemory(ctx context.Context, listeners []net.Listener, addr string) (net.Conn, error) {
	for _, l := range listeners {
		if l := l.(*memory); l.Addr().String() == addr {
			near, far := net.Pipe()
			select {
			case l.conns <- far:
				return near, nil
			case <-l.done:
			case <-ctx.Done():
			}
		}
	}
	return nil, fmt.Errorf("nobody listens at %s", addr)
}

// FuzzConversation mangles what servers answer in whole conversations, from the first look-up on. Whatever comes,
// nothing may panic, hang or be left behind, and rows come in order.
func FuzzConversation(f *testing.F) {
	for verb := range byte(verbs) {
		f.Add(verb, []byte{})
		for answer := range byte(8) {
			f.Add(verb, []byte{answer, 0, 0, 3, 0, 1})
			f.Add(verb, []byte{answer, 1, 0, 20, 0, 1})
			f.Add(verb, []byte{answer, 2, 0, 5, 0, 1})
			f.Add(verb, []byte{answer, 3, 0, answer, 0, 0})
		}
	}
	// The part of a row that ends a response is none: a result without cells.
	f.Add(byte(1), []byte{3, 5, 0, 68, 34, 0, 3, 0, 0, 3, 0, 1})
	f.Fuzz(func(t *testing.T, verb byte, edits []byte) {
		synctest.Test(t, func(t *testing.T) {
			listeners := []net.Listener{}
			for i := range 2 {
				listeners = append(listeners, &memory{i + 1, make(chan net.Conn), make(chan struct{})})
			}
			fake, cfg := newFake(t, listeners, string(key(3)))
			fake.frame = (&mangler{edits: edits}).frame
			fake.perScan = 3
			for i := range 6 {
				for q := range 2 {
					fake.put(&wire.Cell{Row: key(i), Qualifier: fmt.Appendf(nil, "q%d", q), Value: fmt.Append(nil, i)})
				}
			}
			cfg.OperationTimeout, cfg.RPCTimeout = 10*time.Second, time.Second
			cfg.Dial = func(ctx context.Context, _, addr string) (net.Conn, error) { return dialMemory(ctx, listeners, addr) }
			c, err := client.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := converse(t, c, verb%verbs); err != nil && len(edits) < editSize {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			fake.stop()
		})
	})
}

const verbs = 8

// converse has a client ask for something.
func converse(t *testing.T, c *client.Client, verb byte) error {
	ctx := t.Context()
	at := client.Coord{Table: "t", Row: []byte("n"), Family: "f"}
	var last []byte
	var err error
	see := func(row client.Row, failed error, want int) {
		if err = failed; err == nil && last != nil && bytes.Compare(last, row.Key) != want {
			t.Errorf("row %x comes after row %x", row.Key, last)
		}
		last = bytes.Clone(row.Key)
	}
	switch verb {
	case 0:
		var b *client.Batch
		if b, err = c.NewBatch(ctx, "t"); err == nil {
			for i := range 6 {
				b.Put(key(i), "f", []byte("q"), 1, nil)
			}
			err = b.Flush()
		}
	case 1:
		for row, failed := range c.Scan(ctx, client.Scan{Table: "t"}) {
			see(row, failed, -1)
		}
	case 2:
		for row, failed := range c.Scan(ctx, client.Scan{Table: "t", Reversed: true}) {
			see(row, failed, 1)
		}
	case 3:
		for row, failed := range c.Get(ctx, client.Get{Table: "t", Rows: [][]byte{key(1), key(2), key(4), key(9)}}) {
			see(row, failed, -1)
		}
	case 4:
		_, err = c.Increment(ctx, at, 1)
	case 5:
		_, err = c.CheckAndPut(ctx, client.Check{Coord: at, Value: []byte("v")})
	case 6:
		_, err = c.Tables(ctx)
	case 7:
		_, err = c.Describe(ctx, "t")
	}
	return err
}
