package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// pool keeps the connections. For each server and service there are up to two: one for what is small or urgent, and one
// for answers of megabytes, behind which the answers to a put would wait.
type pool struct {
	cfg    *Config
	life   context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials

	mu      sync.Mutex // guards what follows
	closed  bool
	lanes   map[laneKey]*lane
	servers map[string]limiter
}

// laneKey tells the connections of a pool apart.
type laneKey struct {
	addr    string
	service string
	bulk    bool
}

func newPool(cfg *Config) *pool {
	life, cancel := context.WithCancel(context.Background())
	return &pool{
		cfg: cfg, life: life, cancel: cancel, lanes: make(map[laneKey]*lane), servers: make(map[string]limiter),
	}
}

// calls is the connection for small requests to a region server.
func (p *pool) calls(ctx context.Context, addr string) (*rpc.Conn, error) {
	return p.conn(ctx, laneKey{addr: addr, service: wire.ClientService})
}

// bulk is the connection for large answers of a region server.
func (p *pool) bulk(ctx context.Context, addr string) (*rpc.Conn, error) {
	return p.conn(ctx, laneKey{addr: addr, service: wire.ClientService, bulk: true})
}

// conn returns a connection that works as far as is known, dialling it when there is none. It fails at once during the
// pause after a failed dial, so that nobody waits for a server that is down while its regions move elsewhere.
func (p *pool) conn(ctx context.Context, key laneKey) (*rpc.Conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	l := p.lanes[key]
	if l == nil {
		l = &lane{pool: p, key: key}
		p.lanes[key] = l
	}
	p.mu.Unlock()
	return l.get(ctx)
}

// limit is the limiter of the requests in flight to a server.
func (p *pool) limit(addr string) limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.servers[addr]
	if !ok {
		l = newLimiter(p.cfg.ServerRPCs)
		p.servers[addr] = l
	}
	return l
}

// close breaks all connections and waits for their goroutines.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	for _, l := range p.lanes { // nobody adds to it any more
		l.close()
	}
}

// lane is the place of one connection.
type lane struct {
	pool *pool
	key  laneKey

	mu       sync.Mutex // guards what follows
	conn     *rpc.Conn  // the last one, which may be broken by now
	dial     *dial      // under way; nil when there is none
	failures int        // of dials since the last one that succeeded
	resting  time.Time  // no dial before
	err      error      // of the last dial
}

// dial is one attempt to connect, which all who need the connection wait for.
type dial struct {
	done chan struct{} // closed when conn and err are set
	conn *rpc.Conn
	err  error
}

// errResting says that a server is left alone for a moment after a failed dial.
var errResting = errors.New("not dialled again so soon")

func (l *lane) get(ctx context.Context) (*rpc.Conn, error) {
	l.mu.Lock()
	if l.conn != nil && l.conn.Err() == nil {
		defer l.mu.Unlock()
		return l.conn, nil
	}
	d := l.dial
	if d == nil {
		if time.Now().Before(l.resting) {
			defer l.mu.Unlock()
			return nil, &rpc.Error{Addr: l.key.addr, Method: "dial", Err: fmt.Errorf("%w: %w", errResting, l.err)}
		}
		d = &dial{done: make(chan struct{})}
		l.dial = d
		old := l.conn
		l.conn = nil
		if !l.pool.begin(func() { l.connect(d, old) }) {
			l.dial = nil
			l.mu.Unlock()
			return nil, ErrClosed
		}
	}
	l.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, &rpc.Error{Addr: l.key.addr, Method: "dial", Err: ctx.Err()}
	}
}

// begin runs f in a goroutine that close waits for, unless the pool is closed.
func (p *pool) begin(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Go(f)
	return true
}

// connect dials on behalf of all who wait, and hence not with the context of any of them.
func (l *lane) connect(d *dial, old *rpc.Conn) {
	if old != nil {
		_ = old.Close() // it is broken; its goroutines may still be on their way out
	}
	cfg := l.pool.cfg
	ctx, cancel := context.WithTimeout(l.pool.life, cfg.DialTimeout)
	defer cancel()
	d.conn, d.err = rpc.Dial(ctx, rpc.Config{
		Addr: l.key.addr, Service: l.key.service, User: cfg.User, TLS: cloned(cfg.TLS), Compression: cfg.Compression,
		Auth: cfg.Auth, Dial: cfg.Dial, WriteTimeout: cfg.RPCTimeout, StallTimeout: cfg.RPCTimeout,
		Observer: cfg.Observer, Logger: cfg.Logger,
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dial = nil
	if d.err != nil {
		l.failures++
		l.err = d.err
		l.resting = time.Now().Add(restPause(l.failures))
	} else {
		l.failures, l.err, l.conn = 0, nil, d.conn
	}
	close(d.done)
}

// restPause is for how long a server is left alone after so many failed dials in a row.
func restPause(failures int) time.Duration {
	return min(50*time.Millisecond<<min(failures, 6), 2*time.Second)
}

func (l *lane) close() {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

// limiter bounds how many do something at once.
type limiter chan struct{}

func newLimiter(n int) limiter { return make(limiter, n) }

// acquire waits until there are fewer.
func (l limiter) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acquireBy is acquire until a deadline, for less than a context of its own.
func (l limiter) acquireBy(ctx context.Context, deadline time.Time) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case l <- struct{}{}:
		return nil
	case <-t.C:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l limiter) release() { <-l }
