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
)

// One connection too many takes the place of an idle one; where all have requests under way it is closed.
func TestListenerConnections_AreBounded(t *testing.T) {
	const most = 3
	bound := newConnections(most, "--web.max-connections", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	server.Config.ConnState = bound.changed
	server.Start()
	t.Cleanup(server.Close)
	idle := func(want int) {
		for got := -1; got != want; time.Sleep(time.Millisecond) {
			got = 0
			bound.mu.Lock()
			for _, since := range bound.open {
				if !since.IsZero() {
					got++
				}
			}
			bound.mu.Unlock()
		}
	}
	dial := func() (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
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
