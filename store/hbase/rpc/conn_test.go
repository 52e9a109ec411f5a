package rpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDial_IntroducesItself(t *testing.T) {
	peers := make(chan *peer, 1)
	s := serve(t, nil, func(p *peer, q request) { peers <- p; echo(p, q) })
	c := s.dial(func(cfg *rpc.Config) { cfg.Compression = wire.Gzip })
	if _, err := text(t.Context(), c, "x"); err != nil {
		t.Fatal(err)
	}
	got := <-peers
	want := wire.ConnectionHeader{User: "tester", Service: "ClientService", Codec: wire.KeyValueCodec,
		Compressor: wire.Gzip.Class(), Version: "2.6.4", Major: 2, Minor: 6}
	if got.auth != wire.AuthSimple || got.header != want {
		t.Errorf("got %v, %+v, want %v, %+v", got.auth, got.header, wire.AuthSimple, want)
	}
}

func TestCall_CarriesParamAndCells(t *testing.T) {
	for _, compression := range []wire.Compression{wire.NoCompression, wire.Gzip, wire.Zlib, wire.Snappy} {
		s := serve(t, nil, echo)
		c := s.dial(func(cfg *rpc.Config) { cfg.Compression = compression })
		cells := [][]byte{bytes.Repeat([]byte("abcdefgh"), 100_000), []byte("end")}
		response, err := c.Call(t.Context(), &rpc.Request{Method: "Echo", Param: [][]byte{[]byte("a"), nil,
			[]byte("b")}, Cells: cells})
		if err != nil {
			t.Fatal(err)
		}
		if string(response.Param) != "ab" || !bytes.Equal(response.Cells, bytes.Join(cells, nil)) {
			t.Errorf("compression %v: got param %q and %d bytes of cells", compression, response.Param,
				len(response.Cells))
		}
		response.Release()
	}
}

func TestCall_SendsItsDeadline(t *testing.T) {
	headers := make(chan wire.RequestHeader, 3)
	s := serve(t, nil, func(p *peer, q request) { headers <- q.RequestHeader; echo(p, q) })
	c := s.dial(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		if _, err := text(ctx, c, "x"); err != nil {
			t.Fatal(err)
		}
	}
	sooner := rpc.Request{Method: "Echo", Deadline: time.Now().Add(time.Minute)}
	if _, err := c.Call(ctx, &sooner); err != nil {
		t.Fatal(err)
	}
	if got := <-headers; got.Method != "Echo" || got.Timeout == 0 || got.Timeout > 3_600_000 {
		t.Errorf("with a deadline in an hour: got %+v", got)
	}
	if got := <-headers; got.Timeout != 0 {
		t.Errorf("without a deadline: got %+v", got)
	}
	if got := <-headers; got.Timeout == 0 || got.Timeout > 60_000 {
		t.Errorf("with a deadline of its own in a minute: got %+v", got)
	}
}

func TestCall_ThousandsInFlightAnsweredOutOfOrder(t *testing.T) {
	const calls, batch = 5000, 50
	var held []request
	s := serve(t, nil, func(p *peer, q request) {
		if held = append(held, q); len(held) < batch {
			return
		}
		for i := len(held) - 1; i >= 0; i-- {
			echo(p, held[i])
		}
		held = held[:0]
	})
	c := s.dial(nil)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			want := fmt.Sprintf("call %d", i) + strings.Repeat("x", i%3000)
			if got, err := text(t.Context(), c, want); err != nil || got != want {
				t.Errorf("call %d: got %.20q, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if n := c.InFlight(); n != 0 {
		t.Errorf("in flight: got %d, want 0", n)
	}
}

func TestCall_ExceptionIsTheServersWord(t *testing.T) {
	want := wire.Exception{Class: "org.apache.hadoop.hbase.exceptions.RegionMovedException", Message: "Region moved",
		Host: "h", Port: 16020, DoNotRetry: true, Overloaded: true}
	s := serve(t, nil, func(p *peer, q request) { p.refuse(q.CallID, &want) })
	c := s.dial(nil)
	_, err := text(t.Context(), c, "x")
	var got *wire.Exception
	if !errors.As(err, &got) || *got != want || !rpc.Sent(err) {
		t.Errorf("got %v, %+v, sent %v, want %+v, true", err, got, rpc.Sent(err), want)
	}
	if c.Err() != nil {
		t.Errorf("the connection broke: %v", c.Err())
	}
}

func TestCall_CancelledIsForgotten(t *testing.T) {
	arrived := make(chan request, 1)
	var first atomic.Bool
	s := serve(t, nil, func(p *peer, q request) {
		if first.CompareAndSwap(false, true) {
			arrived <- q
			return
		}
		echo(p, <-arrived) // the late answer, and then the one that is wanted
		echo(p, q)
	})
	c := s.dial(nil)
	ctx, cancel := context.WithCancel(t.Context())
	late := make(chan request, 1)
	go func() {
		q := <-arrived
		cancel()
		late <- q
	}()
	if _, err := text(ctx, c, "one"); !errors.Is(err, context.Canceled) || !rpc.Sent(err) {
		t.Errorf("cancelled call: got %v, sent %v, want context.Canceled, true", err, rpc.Sent(err))
	}
	if n := c.InFlight(); n != 0 {
		t.Errorf("in flight after it: got %d, want 0", n)
	}
	arrived <- <-late
	if got, err := text(t.Context(), c, "two"); err != nil || got != "two" {
		t.Errorf("next call: got %q, %v", got, err)
	}
}

// Calls are used again. Whatever comes late, be it the response, the end of the time or that of the context, must not
// reach the call that has the place of an earlier one.
func TestCall_LateEndsReachNoOtherCall(t *testing.T) {
	var held []request
	s := serve(t, nil, func(p *peer, q request) {
		switch q.param[0] - '0' {
		case 0: // much later
			held = append(held, q)
		case 1:
			p.refuse(q.CallID, &wire.Exception{Class: "x.CallTimeoutException", Message: string(q.param)})
		default:
			echo(p, q)
		}
		if len(held) == 20 {
			for _, q := range held {
				echo(p, q)
			}
			held = held[:0]
		}
	})
	c := s.dial(nil)
	var answered, ended atomic.Int64
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				want := fmt.Sprintf("%d: %d of %d", i%4, i, w)
				request := rpc.Request{Method: "Echo", Param: [][]byte{[]byte(want)}}
				request.Deadline = time.Now().Add(time.Duration(i%7) * 300 * time.Microsecond)
				if i%3 == 0 {
					time.AfterFunc(time.Duration(i%5)*100*time.Microsecond, cancel)
				}
				response, err := c.Call(ctx, &request)
				var exception *wire.Exception
				switch {
				case err == nil:
					if got := string(response.Param); got != want {
						t.Errorf("call %q got the answer %q", want, got)
					}
					response.Release()
					answered.Add(1)
				case errors.As(err, &exception):
					if exception.Message != want {
						t.Errorf("call %q got the exception %q", want, exception.Message)
					}
				case ctx.Err() == nil && time.Now().Before(request.Deadline):
					t.Errorf("call %q ended too soon: %v", want, err)
				case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
					t.Errorf("call %q: got %v, want the end of its time", want, err)
				default:
					ended.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if answered.Load() == 0 || ended.Load() == 0 || c.InFlight() != 0 {
		t.Errorf("%d calls were answered, %d ended, %d are in flight; want some, some, 0", answered.Load(), ended.Load(),
			c.InFlight())
	}
}

func TestCall_BrokenConnectionFailsAllCalls(t *testing.T) {
	for _, test := range []struct {
		name   string
		harm   func(p *peer, q request)
		want   string
		wantIs error
	}{
		{"cut", func(p *peer, q request) { p.Close() }, "", rpc.ErrRefused},
		{"cut within a frame", func(p *peer, q request) {
			b := wire.AppendResponse(nil, wire.ResponseHeader{CallID: q.CallID}, make([]byte, 100), nil)
			_, _ = p.Write(b[:50])
			p.Close()
		}, "unexpected EOF", nil},
		{"cut within a length", func(p *peer, q request) {
			_, _ = p.Write([]byte{0, 0})
			p.Close()
		}, "unexpected EOF", nil},
		{"garbage", func(p *peer, q request) { _, _ = p.Write([]byte{0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}) }, "",
			wire.ErrMalformed},
		{"huge length", func(p *peer, q request) { _, _ = p.Write([]byte{0xff, 0xff, 0xff, 0xff}) }, "announced",
			wire.ErrMalformed},
		{"empty frame", func(p *peer, q request) { _, _ = p.Write([]byte{0, 0, 0, 0}) }, "", wire.ErrMalformed},
		{"fatal exception", func(p *peer, q request) {
			p.refuse(wire.NoCall, &wire.Exception{Class: "x.FatalConnectionException", Message: "no"})
		}, "FatalConnectionException: no", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var n int
			s := serve(t, nil, func(p *peer, q request) {
				if n++; n == 10 {
					test.harm(p, q)
				}
			})
			c := s.dial(nil)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, err := text(t.Context(), c, "x")
					if err == nil || !rpc.Sent(err) || !strings.Contains(err.Error(), test.want) ||
						test.wantIs != nil && !errors.Is(err, test.wantIs) {
						t.Errorf("got %v, sent %v, want %q, sent", err, rpc.Sent(err), test.want)
					}
				})
			}
			wg.Wait()
			<-c.Done()
			if _, err := text(t.Context(), c, "x"); err == nil || rpc.Sent(err) {
				t.Errorf("call on the broken connection: got %v, sent %v, want an error, not sent", err, rpc.Sent(err))
			}
		})
	}
}

func TestCall_EOFAfterAnAnswerIsNoRefusal(t *testing.T) {
	var n int
	s := serve(t, nil, func(p *peer, q request) {
		if n++; n == 2 {
			p.Close()
			return
		}
		echo(p, q)
	})
	c := s.dial(nil)
	if _, err := text(t.Context(), c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := text(t.Context(), c, "x"); err == nil || errors.Is(err, rpc.ErrRefused) || !rpc.Sent(err) {
		t.Errorf("got %v", err)
	}
}

func TestCall_EndedContextSendsNothing(t *testing.T) {
	s := serve(t, nil, echo)
	c := s.dial(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := text(ctx, c, "x"); !errors.Is(err, context.Canceled) || rpc.Sent(err) {
		t.Errorf("got %v, sent %v, want context.Canceled, not sent", err, rpc.Sent(err))
	}
}

// clogged is a server that accepts and never reads.
func clogged(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

func TestCall_ServerThatStopsReadingBreaksTheConnection(t *testing.T) {
	cfg := rpc.Config{Addr: clogged(t), Service: wire.ClientService, WriteTimeout: 50 * time.Millisecond}
	c, err := rpc.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large := rpc.Request{Method: "Multi", Param: [][]byte{make([]byte, 64<<20)}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, &large); err == nil || rpc.Sent(err) {
		t.Errorf("got %v, sent %v, want an error, not sent: the last byte never went out", err, rpc.Sent(err))
	}
	<-c.Done()
}

func TestCall_EndsWithItsContextWhileItIsWritten(t *testing.T) {
	cfg := rpc.Config{Addr: clogged(t), Service: wire.ClientService, WriteTimeout: time.Hour}
	c, err := rpc.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	large := rpc.Request{Method: "Multi", Param: [][]byte{make([]byte, 64<<20)}}
	if _, err := c.Call(ctx, &large); !errors.Is(err, context.DeadlineExceeded) || rpc.Sent(err) {
		t.Errorf("got %v, sent %v, want the end of the context, not sent", err, rpc.Sent(err))
	}
	<-c.Done()
}

func TestCall_SilentServerBreaksTheConnection(t *testing.T) {
	s := serve(t, nil, func(*peer, request) {})
	c := s.dial(func(cfg *rpc.Config) { cfg.StallTimeout = time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := text(ctx, c, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
	<-c.Done()
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Errorf("connection: got %v", err)
	}
}

// Nobody waits for the server as long as it may be silent, but one waits after the other.
func TestCalls_ShorterThanTheSilenceBreakTheConnectionToo(t *testing.T) {
	s := serve(t, nil, func(*peer, request) {})
	c := s.dial(func(cfg *rpc.Config) { cfg.StallTimeout = 200 * time.Millisecond })
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := text(ctx, c, "x")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			if !strings.Contains(err.Error(), "silent") {
				t.Errorf("got error %v", err)
			}
			return
		}
	}
	t.Error("the connection is taken for a good one still")
}

// A length that is wrong swallows the answers behind it: bytes come all the time, and no answer does.
func TestCalls_BehindAResponseThatDoesNotEndBreakTheConnection(t *testing.T) {
	var once sync.Once
	s := serve(t, nil, func(p *peer, q request) {
		once.Do(func() { _, _ = p.Write(binary.BigEndian.AppendUint32(nil, 200<<20)) })
		echo(p, q)
	})
	c := s.dial(func(cfg *rpc.Config) { cfg.StallTimeout = 200 * time.Millisecond })
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := text(ctx, c, "x")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			if !strings.Contains(err.Error(), "not come whole") {
				t.Errorf("got error %v", err)
			}
			return
		}
	}
	t.Error("the connection is taken for a good one still")
}

func TestClose_FailsCallsInFlightAndWaits(t *testing.T) {
	arrived := make(chan struct{})
	s := serve(t, nil, func(*peer, request) { close(arrived) })
	c := s.dial(nil)
	failed := make(chan error)
	go func() {
		_, err := text(t.Context(), c, "x")
		failed <- err
	}()
	<-arrived
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, rpc.ErrClosed) || !rpc.Sent(err) {
		t.Errorf("got %v, sent %v, want ErrClosed, sent", err, rpc.Sent(err))
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	s := serve(t, &tls.Config{Certificates: []tls.Certificate{cert}}, echo)
	c := s.dial(func(cfg *rpc.Config) { cfg.TLS = &tls.Config{RootCAs: pool} })
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			want := strings.Repeat("tls", i*100)
			if got, err := text(t.Context(), c, want[:i], want[i:]); err != nil || got != want {
				t.Errorf("call %d: got %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()

	_, err := rpc.Dial(t.Context(), rpc.Config{Addr: c.Addr(), Service: wire.ClientService, TLS: &tls.Config{}})
	if err == nil || rpc.Sent(err) {
		t.Errorf("dial with an unknown authority: got %v", err)
	}
}

// hanging authenticates until its context ends.
type hanging struct{ rpc.Simple }

func (hanging) Handshake(_ context.Context, conn net.Conn) (net.Conn, error) {
	_, err := conn.Read(make([]byte, 1)) // a server of SIMPLE authentication says nothing
	return nil, err
}

func TestDial_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	_, err := rpc.Dial(ctx, rpc.Config{Addr: clogged(t), Service: wire.ClientService, Auth: hanging{}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestResponse_LivesUntilItsLastRelease(t *testing.T) {
	s := serve(t, nil, echo)
	c := s.dial(nil)
	call := func(param string) *rpc.Response {
		response, err := c.Call(t.Context(), &rpc.Request{Method: "Echo", Param: [][]byte{[]byte(param)}})
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	held := call("held")
	held.Retain()
	held.Release()
	for i := range 100 {
		call(fmt.Sprint(i)).Release()
	}
	if got := string(held.Param); got != "held" {
		t.Errorf("got %q, want %q", got, "held")
	}
	held.Release()
}

func TestCall_LargeResponse(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
	s := serve(t, nil, func(p *peer, q request) { p.answer(q, q.param, large) })
	c := s.dial(nil)
	response, err := c.Call(t.Context(), &rpc.Request{Method: "Scan"})
	if err != nil || !bytes.Equal(response.Cells, large) {
		t.Fatalf("got %v", err)
	}
	response.Release()
	small := s.dial(func(cfg *rpc.Config) { cfg.MaxFrame = 1 << 20 })
	if _, err := small.Call(t.Context(), &rpc.Request{Method: "Scan"}); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("response beyond MaxFrame: got %v", err)
	}
}

// tally is an Observer.
type tally struct {
	mu                sync.Mutex // guards what follows
	started, finished int
	sent, received    int
	failed            int
}

func (y *tally) Started(_ string, size int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.started++
	y.sent += size
}

func (y *tally) Finished(_ string, took time.Duration, size int, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.finished++
	y.received += size
	if err != nil {
		y.failed++
	}
}

func TestObserver_SeesEveryCall(t *testing.T) {
	s := serve(t, nil, func(p *peer, q request) {
		if string(q.param) == "bad" {
			p.refuse(q.CallID, &wire.Exception{Class: "x.Bad"})
			return
		}
		echo(p, q)
	})
	var y tally
	c := s.dial(func(cfg *rpc.Config) { cfg.Observer = &y })
	for _, param := range []string{"good", "bad", "fine"} {
		_, _ = text(t.Context(), c, param)
	}
	if y.started != 3 || y.finished != 3 || y.failed != 1 || y.sent != 11 || y.received != 8 {
		t.Errorf("got %d started, %d finished, %d failed, %d bytes sent, %d received, want 3, 3, 1, 11, 8",
			y.started, y.finished, y.failed, y.sent, y.received)
	}
}

// An answer that comes before the request was sent is none: whoever believed it would take for done what never was.
func TestCall_AnswerBeforeTheRequestIsNone(t *testing.T) {
	for name, exception := range map[string]*wire.Exception{"result": nil, "exception": {Class: "x.Bad"}} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer server.Close()
			go func() {
				hello := make([]byte, 1<<10)
				for n := 0; n < wire.PreambleSize+1; { // preamble and connection header, each in one piece
					k, err := server.Read(hello)
					if err != nil {
						return
					}
					n += k
				}
				_, _ = server.Read(hello[:1]) // the first byte of the request, and no more
				_, _ = server.Write(wire.AppendResponse(nil, wire.ResponseHeader{CallID: 1, Exception: exception}, nil, nil))
			}()
			c, err := rpc.Dial(t.Context(), rpc.Config{
				Addr: "server:1", Service: wire.ClientService, WriteTimeout: 50 * time.Millisecond,
				Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := text(t.Context(), c, "x"); err == nil || rpc.Sent(err) {
				t.Errorf("got error %v, sent %v, want an error, not sent", err, rpc.Sent(err))
			}
		})
	}
}
