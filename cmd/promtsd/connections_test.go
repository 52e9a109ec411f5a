package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtsd/promtsd/store/storetest"
)

// One connection too many takes the place of an idle one; where all have requests under way it is closed.
func TestListenerConnections_AreBounded(t *testing.T) {
	const most = 3
	bound := storetest.Must(newConnections(most, "--web.max-connections", prometheus.NewRegistry(), slog.New(slog.DiscardHandler)))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	server.Config.ConnState = bound.changed
	server.Start()
	t.Cleanup(server.Close)
	idle := func(want int) {
		for got := -1; got != want; time.Sleep(time.Millisecond) {
			bound.mu.Lock()
			got = bound.idle
			bound.mu.Unlock()
		}
	}
	client := byte(1)
	dial := func() (net.Conn, *bufio.Reader) {
		client++
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, client)}}
		conn, err := from.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		return conn, bufio.NewReader(conn)
	}
	ask := func(conn net.Conn, in *bufio.Reader) error {
		if _, err := fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return err
		}
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	first, firstIn := dial()
	if err := ask(first, firstIn); err != nil {
		t.Fatal(err)
	}
	idle(1)
	for range most - 1 { // idle, later than the first
		if err := ask(dial()); err != nil {
			t.Fatal(err)
		}
	}
	idle(most)
	if err := ask(dial()); err != nil {
		t.Errorf("one more while others are idle: %v", err)
	}
	if err := ask(first, firstIn); err == nil {
		t.Error("the connection that was idle for longest is still served")
	}
	for range most { // take the places of the idle ones, and keep them
		conn, _ := dial()
		if _, err := fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	idle(0)
	if err := ask(dial()); err == nil {
		t.Error("one more is served while all have requests under way")
	}
	idle(0)
	if got := testutil.ToFloat64(bound.refused); got != 1 {
		t.Errorf("%v connections are counted as refused, want 1", got)
	}
}

// stub is a connection from an address.
type stub struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (s *stub) RemoteAddr() net.Addr { return s.from }
func (s *stub) Close() error         { s.closed = true; return nil }

// One client leaves connections to others, whether those that it has are idle or not; alone it has three quarters.
func TestListenerConnections_AreShared(t *testing.T) {
	for _, state := range []http.ConnState{http.StateActive, http.StateIdle} {
		const most = 64
		bound := storetest.Must(newConnections(most, "--web.max-connections", prometheus.NewRegistry(), slog.New(slog.DiscardHandler)))
		open := func(host byte, n int) (open []*stub) {
			for range n {
				s := &stub{from: &net.TCPAddr{IP: net.IPv4(192, 0, 2, host)}}
				bound.changed(s, http.StateNew)
				if bound.changed(s, state); !s.closed {
					open = append(open, s)
				}
			}
			return open
		}
		all := open(1, 2*most)
		if n := bound.of["192.0.2.1"].open; n != most/4*3 {
			t.Errorf("one client has %d connections of %d", n, most)
		}
		for _, s := range all { // those that are idle become active together
			bound.changed(s, http.StateActive)
		}
		if n := len(open(2, 4)); n != 4 {
			t.Errorf("%v: another client gets %d of 4 connections", state, n)
		}
		for _, s := range all {
			bound.changed(s, http.StateClosed)
		}
		if n := len(open(2, most)); n < most/2 {
			t.Errorf("%v: when the first has gone the other gets %d connections", state, n)
		}
		for conn := range bound.open {
			bound.changed(conn, http.StateClosed)
		}
		if len(bound.open)+len(bound.of)+bound.idle != 0 {
			t.Errorf("in the end %v, %v, %d idle", bound.open, bound.of, bound.idle)
		}
	}
}
