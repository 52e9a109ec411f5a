package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// The version told to servers; they use it to choose which behaviour of older versions they imitate.
const (
	versionText  = "2.6.4"
	versionMajor = 2
	versionMinor = 6
)

// Conn is a connection. Its methods may be called by many goroutines at once.
//
// When it breaks it stays broken: all calls in flight fail, Done is closed, and whoever needs a connection dials anew.
type Conn struct {
	cfg      Config
	nc       net.Conn
	started  time.Time
	received atomic.Int64 // when the last bytes came, as a duration since started
	framing  atomic.Int64 // the same when the response began of which a part has come; 0: there is none
	answered atomic.Bool  // whether a response ever came
	greeting []byte       // how the server began to speak; the reader's
	buffers  pools
	idle     sync.Pool     // of *call that nobody holds
	wake     chan struct{} // holds one token when queue may have become non-empty
	done     chan struct{} // closed by fail
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	err    error      // why the connection is broken; nil while it works
	lastID uint32
	calls  map[uint32]*call // waiting for a response, whether written or not
	asked  int64            // when the first call was queued since the last bytes came, on the clock of received
	queue  []*call          // to be written
}

// Dial connects, authenticates and binds the connection to its service. The context bounds that much, not the life of
// the connection. The server does not confirm the connection header: what it dislikes there fails the first call
// (ErrRefused).
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, &Error{Addr: cfg.Addr, Method: methodDial, Err: err}
	}
	nc, err := cfg.Dial(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, &Error{Addr: cfg.Addr, Method: methodDial, Err: err}
	}
	bound, err := handshake(ctx, nc, &cfg)
	if err != nil {
		_ = nc.Close()
		return nil, &Error{Addr: cfg.Addr, Method: methodDial, Err: err}
	}
	c := &Conn{
		cfg: cfg, nc: bound, started: time.Now(), calls: make(map[uint32]*call),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	c.wg.Go(c.write)
	c.wg.Go(c.read)
	return c, nil
}

// handshake takes a fresh TCP connection to where frames may follow.
func handshake(ctx context.Context, nc net.Conn, cfg *Config) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	// A context that ends without a deadline wakes the handshake up by one in the past.
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	bound, err := shake(ctx, nc, cfg)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return bound, bound.SetDeadline(time.Time{})
}

func shake(ctx context.Context, nc net.Conn, cfg *Config) (net.Conn, error) {
	if cfg.TLS != nil {
		secured := tls.Client(nc, cfg.TLS)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("tls handshake: %w", explainTLS(err))
		}
		nc = secured
	}
	if _, err := nc.Write(wire.AppendPreamble(nil, cfg.Auth.Method())); err != nil {
		return nil, fmt.Errorf("write preamble: %w", err)
	}
	nc, err := cfg.Auth.Handshake(ctx, nc)
	if err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	header := wire.ConnectionHeader{
		User: cfg.User, Service: cfg.Service, Codec: wire.KeyValueCodec, Compressor: cfg.Compression.Class(),
		Version: versionText, Major: versionMajor, Minor: versionMinor,
	}
	if _, err := nc.Write(wire.AppendConnectionHeader(nil, &header)); err != nil {
		return nil, fmt.Errorf("write connection header: %w", err)
	}
	return nc, nil
}

// explainTLS adds what it probably means that something is no answer to a TLS client.
func explainTLS(err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) || closed(err) {
		return fmt.Errorf("%w: the server does not speak TLS, as it seems", err)
	}
	return err
}

// Addr is the address that was dialled.
func (c *Conn) Addr() string { return c.cfg.Addr }

// InFlight is the number of calls that wait for a response.
func (c *Conn) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// Idle is for how long no call has waited for a response, and none has come.
func (c *Conn) Idle() time.Duration {
	if c.InFlight() > 0 {
		return 0
	}
	return time.Duration(c.sinceStart() - c.received.Load())
}

// Done is closed when the connection is broken or closed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err tells why the connection is broken: ErrClosed after Close, nil while it works.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close breaks the connection: calls in flight fail with ErrClosed. It returns when the connection's goroutines have
// ended; responses that were handed out stay valid until they are released.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	c.wg.Wait()
	return nil
}

// fail breaks the connection for the given reason, unless it is broken already.
func (c *Conn) fail(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = reason
	waiting := c.calls
	c.calls, c.queue = nil, nil
	c.mu.Unlock()

	close(c.done)
	_ = c.nc.Close()
	if reason != ErrClosed {
		c.cfg.Logger.Info("connection broken", "addr", c.cfg.Addr, "service", c.cfg.Service, "calls", len(waiting),
			"err", reason)
	}
	for _, k := range waiting {
		k.outcome <- outcome{err: reason}
	}
}

// sinceStart is a clock for received.
func (c *Conn) sinceStart() int64 { return int64(time.Since(c.started)) }
