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
	// Large requests of the two kinds are in each other's way as little as can be.
	writes, reads *traffic

	mu     sync.Mutex // guards what follows
	closed bool
	lanes  map[laneKey]*lane
}

// traffic is the large requests of one kind: how many of them may be in flight, and the connections they take.
type traffic struct {
	regions *limits // by name
	servers *limits // by address
	conn    func(ctx context.Context, addr string) (*rpc.Conn, error)
}

// laneKey tells the connections of a pool apart.
type laneKey struct {
	addr    string
	service string
	bulk    bool
}

func newPool(cfg *Config) *pool {
	life, cancel := context.WithCancel(context.Background())
	p := &pool{cfg: cfg, life: life, cancel: cancel, lanes: make(map[laneKey]*lane)}
	p.writes = &traffic{newLimits(cfg.RegionRPCs), newLimits(cfg.ServerRPCs), p.calls}
	p.reads = &traffic{newLimits(cfg.RegionRPCs), newLimits(cfg.ServerRPCs), p.bulk}
	return p
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
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		l := p.lanes[key]
		if l == nil {
			l = &lane{pool: p, key: key}
			l.idle = time.AfterFunc(p.cfg.IdleTimeout, func() { p.begin(l.rest) })
			p.lanes[key] = l
		}
		p.mu.Unlock()
		if conn, err := l.get(ctx); err != errGone {
			return conn, err
		}
	}
}

// errGone says that a lane is none of the pool's any more, because nobody used it.
var errGone = errors.New("connection was idle for too long")

// rest gives the lane up when nobody has used it for long, and else looks again later.
func (l *lane) rest() {
	p := l.pool
	l.mu.Lock()
	unused := time.Since(l.used)
	if l.conn != nil {
		unused = min(unused, l.conn.Idle())
	}
	if l.gone = l.dial == nil && unused >= p.cfg.IdleTimeout; !l.gone {
		l.idle.Reset(max(p.cfg.IdleTimeout-unused, p.cfg.IdleTimeout/10))
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	p.mu.Lock()
	delete(p.lanes, l.key)
	p.mu.Unlock()
	l.close()
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

	idle *time.Timer // runs rest

	mu       sync.Mutex // guards what follows
	used     time.Time  // when somebody wanted the connection last
	gone     bool       // the pool has no such lane any more
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
	if l.gone {
		l.mu.Unlock()
		return nil, errGone
	}
	l.used = time.Now()
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
	l.idle.Stop()
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}
