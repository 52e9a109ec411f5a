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
	slots  map[slotKey]*slot
}

// traffic is the large requests of one kind: how many of them may be in flight, and the connections they take.
type traffic struct {
	regions *limits // by name
	servers *limits // by address
	conn    func(ctx context.Context, addr string) (*rpc.Conn, error)
}

// slotKey tells the connections of a pool apart.
type slotKey struct {
	addr    string
	service string
	bulk    bool
}

func newPool(cfg *Config) *pool {
	life, cancel := context.WithCancel(context.Background())
	p := &pool{cfg: cfg, life: life, cancel: cancel, slots: make(map[slotKey]*slot)}
	p.writes = &traffic{newLimits(cfg.RegionRPCs), newLimits(cfg.ServerRPCs), p.calls}
	p.reads = &traffic{newLimits(cfg.RegionRPCs), newLimits(cfg.ServerRPCs), p.bulk}
	return p
}

// calls is the connection for small requests to a region server.
func (p *pool) calls(ctx context.Context, addr string) (*rpc.Conn, error) {
	return p.conn(ctx, slotKey{addr: addr, service: wire.ClientService})
}

// bulk is the connection for large answers of a region server.
func (p *pool) bulk(ctx context.Context, addr string) (*rpc.Conn, error) {
	return p.conn(ctx, slotKey{addr: addr, service: wire.ClientService, bulk: true})
}

// conn returns a connection that works as far as is known, dialling it when there is none. It fails at once during the
// pause after a failed dial, so that nobody waits for a server that is down while its regions move elsewhere.
func (p *pool) conn(ctx context.Context, key slotKey) (*rpc.Conn, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		s := p.slots[key]
		if s == nil {
			s = &slot{pool: p, key: key}
			s.idle = time.AfterFunc(p.cfg.IdleTimeout, func() { p.begin(s.closeIdle) })
			p.slots[key] = s
		}
		p.mu.Unlock()
		if conn, err := s.get(ctx); err != errGone {
			return conn, err
		}
	}
}

// errGone says that a slot is none of the pool's any more, because nobody used it.
var errGone = errors.New("connection was idle for too long")

// closeIdle gives the slot up when nobody has used it for long, and else looks again later.
func (s *slot) closeIdle() {
	p := s.pool
	s.mu.Lock()
	unused := time.Since(s.used)
	if s.conn != nil {
		unused = min(unused, s.conn.Idle())
	}
	if s.gone = s.dial == nil && unused >= p.cfg.IdleTimeout; !s.gone {
		s.idle.Reset(max(p.cfg.IdleTimeout-unused, p.cfg.IdleTimeout/10))
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	p.mu.Lock()
	delete(p.slots, s.key)
	p.mu.Unlock()
	s.close()
}

// close breaks all connections and waits for their goroutines.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	for _, s := range p.slots { // nobody adds to it any more
		s.close()
	}
}

// slot is the place of one connection.
type slot struct {
	pool *pool
	key  slotKey

	idle *time.Timer // runs closeIdle

	mu       sync.Mutex // guards what follows
	used     time.Time  // when somebody wanted the connection last
	gone     bool       // the pool has no such slot any more
	conn     *rpc.Conn  // the last one, which may be broken by now
	dial     *dial      // under way; nil when there is none
	failures int        // of dials since the last one that succeeded
	backoff  time.Time  // no dial before
	err      error      // of the last dial
}

// dial is one attempt to connect, which all who need the connection wait for.
type dial struct {
	done chan struct{} // closed when conn and err are set
	conn *rpc.Conn
	err  error
}

// errBackoff says that a server is left alone for a moment after a failed dial.
var errBackoff = errors.New("not dialled again so soon")

func (s *slot) get(ctx context.Context) (*rpc.Conn, error) {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil, errGone
	}
	s.used = time.Now()
	if s.conn != nil && s.conn.Err() == nil {
		defer s.mu.Unlock()
		return s.conn, nil
	}
	d := s.dial
	if d == nil {
		if time.Now().Before(s.backoff) {
			defer s.mu.Unlock()
			return nil, &rpc.Error{Addr: s.key.addr, Method: "dial", Err: fmt.Errorf("%w: %w", errBackoff, s.err)}
		}
		d = &dial{done: make(chan struct{})}
		s.dial = d
		old := s.conn
		s.conn = nil
		if !s.pool.begin(func() { s.connect(d, old) }) {
			s.dial = nil
			s.mu.Unlock()
			return nil, ErrClosed
		}
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, &rpc.Error{Addr: s.key.addr, Method: "dial", Err: ctx.Err()}
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
func (s *slot) connect(d *dial, old *rpc.Conn) {
	if old != nil {
		_ = old.Close() // it is broken; its goroutines may still be on their way out
	}
	cfg := s.pool.cfg
	ctx, cancel := context.WithTimeout(s.pool.life, cfg.DialTimeout)
	defer cancel()
	d.conn, d.err = rpc.Dial(ctx, rpc.Config{
		Addr: s.key.addr, Service: s.key.service, User: cfg.User, TLS: cloned(cfg.TLS), Compression: cfg.Compression,
		Auth: cfg.Auth, Dial: cfg.Dial, WriteTimeout: cfg.RPCTimeout, StallTimeout: cfg.RPCTimeout,
		Observer: cfg.Observer, Logger: cfg.Logger,
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dial = nil
	if d.err != nil {
		s.failures++
		s.err = d.err
		s.backoff = time.Now().Add(dialBackoff(s.failures))
	} else {
		s.failures, s.err, s.conn = 0, nil, d.conn
	}
	close(d.done)
}

// dialBackoff is for how long a server is left alone after so many failed dials in a row.
func dialBackoff(failures int) time.Duration {
	return min(50*time.Millisecond<<min(failures, 6), 2*time.Second)
}

func (s *slot) close() {
	s.idle.Stop()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}
