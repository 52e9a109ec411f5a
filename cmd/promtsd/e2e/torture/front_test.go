package torture_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What a front may do to what passes. Each strikes about every other time.
const (
	cutRequests    = "cut requests"
	cutAnswers     = "cut answers"
	loseAnswers    = "lose answers"
	garbageAnswers = "garbage answers"
	slowAnswers    = "slow answers"
	silence        = "silence" // nothing passes while it lasts
)

var frontFaults = []string{cutRequests, cutAnswers, loseAnswers, garbageAnswers, slowAnswers, silence}

// front stands between a promtsd and those who ask it, and passes on what they say, while it has no fault.
type front struct {
	listener net.Listener
	target   string
	fault    atomic.Value // string

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// newFront listens on a port of its own until the test ends.
func newFront(t *testing.T, target string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: l, target: target, conns: map[net.Conn]bool{}}
	f.fault.Store("")
	f.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.all.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.fault.Store("")
		f.mu.Lock()
		for conn := range f.conns {
			conn.Close()
		}
		f.conns = nil
		f.mu.Unlock()
		f.all.Wait()
	})
	return f
}

func (f *front) url() string { return "http://" + f.listener.Addr().String() }

// serve passes on what is said on one connection until either side ends it.
func (f *front) serve(asker net.Conn) {
	defer asker.Close()
	answerer, err := net.Dial("tcp", f.target)
	if err != nil {
		return
	}
	defer answerer.Close()
	f.mu.Lock()
	if f.conns == nil {
		f.mu.Unlock()
		return
	}
	f.conns[asker], f.conns[answerer] = true, true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.conns, asker)
		delete(f.conns, answerer)
		f.mu.Unlock()
	}()
	f.all.Go(func() {
		f.pass(answerer, asker, f.spoilRequest)
		answerer.Close()
		asker.Close()
	})
	f.pass(asker, answerer, f.spoilAnswer)
}

// pass passes bytes on until an error, or until spoil wants no more.
func (f *front) pass(to, from net.Conn, spoil func(chunk []byte) ([]byte, bool)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		chunk, more := spoil(buf[:n])
		if _, writeErr := to.Write(chunk); err != nil || writeErr != nil || !more {
			return
		}
	}
}

// wait returns the fault of the moment, when it is not silence any more.
func (f *front) wait() string {
	for f.fault.Load() == silence {
		time.Sleep(10 * time.Millisecond)
	}
	return f.fault.Load().(string)
}

func (f *front) spoilRequest(chunk []byte) ([]byte, bool) {
	if f.wait() == cutRequests && rand.IntN(2) == 0 {
		return chunk[:len(chunk)/2], false
	}
	return chunk, true
}

func (f *front) spoilAnswer(chunk []byte) ([]byte, bool) {
	fault := f.wait()
	if rand.IntN(2) == 0 {
		return chunk, true
	}
	switch fault {
	case cutAnswers:
		return chunk[:len(chunk)/2], false
	case loseAnswers:
		return nil, false
	case garbageAnswers:
		return []byte("\x00\xffHTTP/1.1 garbage\r\n\r\n"), false
	case slowAnswers:
		time.Sleep(rand.N(300 * time.Millisecond))
	}
	return chunk, true
}

// hangers connects n senders to a node that begin a request and never end it, until they hang up.
func hangers(d *tortureNode, n int) (hangUp func()) {
	var conns []net.Conn
	for range n {
		conn, err := net.DialTimeout("tcp", d.addr, time.Second)
		if err != nil {
			break // it is down, or has enough of them
		}
		_, _ = conn.Write([]byte("POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n" +
			"Content-Encoding: snappy\r\nContent-Length: 100000\r\n\r\n\x80"))
		conns = append(conns, conn)
	}
	return func() {
		for _, conn := range conns {
			conn.Close()
		}
	}
}
