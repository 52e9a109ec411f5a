package adapter_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/query/budget"
)

// trickle opens a connection, and sends a request by it of whose body one byte comes.
func trickle(t *testing.T, s *server, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 1000000\r\n\r\nx",
		path, typeV1); err != nil {
		t.Fatal(err)
	}
	return conn
}

// awaitInFlight returns when so many bytes of requests under way are counted.
func (s *server) awaitInFlight(t *testing.T, bytes float64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.metric(t,
		"promtsd_write_in_flight_bytes") < bytes; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v bytes are counted after a minute, want %v", s.metric(t, "promtsd_write_in_flight_bytes"), bytes)
		}
	}
}

func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// Requests whose bodies trickle in are counted as what they take of memory, and turned away when that is too much.
func TestWrite_BodiesThatTrickleAreCounted(t *testing.T) {
	const connections = 400
	s := newServer(t, nil)
	s.post(t, "/api/v1/write", block(t, oneV1()), "Content-Type", typeV1) // all that is made once is
	before := memory()
	for range connections {
		trickle(t, s, "/api/v1/write")
	}
	counted := func() float64 { return s.metric(t, "promtsd_write_in_flight_bytes") }
	s.awaitInFlight(t, connections*20<<10)
	used := memory() - before
	t.Logf("%d connections take %.0f bytes, counted are %.0f", connections, used, counted())
	if used > 1.5*counted() {
		t.Errorf("%d connections take %.0f bytes, counted are %.0f", connections, used, counted())
	}

	s = newServer(t, func(c *adapter.Config) { c.Write.MaxInFlightBytes = 1 << 20 })
	for range connections / 2 {
		trickle(t, s, "/api/v1/write")
	}
	last := trickle(t, s, "/api/v1/write")
	_ = last.SetReadDeadline(time.Now().Add(time.Minute))
	if response, err := http.ReadResponse(bufio.NewReader(last), nil); err != nil || response.StatusCode != 503 {
		t.Errorf("one more that trickles: %v, %v; want 503", response, err)
	}
	if got := s.metric(t, "promtsd_write_in_flight_bytes"); got > 1<<20 {
		t.Errorf("%v bytes are in flight", got)
	}
}

// Reads whose bodies trickle in hold up no others.
func TestRead_BodiesThatTrickleHaveNoTurn(t *testing.T) {
	s := newServer(t, func(c *adapter.Config) { c.Read.MaxConcurrent = 2 })
	s.querier.series = []fakeSeries{named("a", points(3))}
	for range 10 {
		trickle(t, s, "/api/v1/read")
	}
	s.awaitInFlight(t, 10*8<<10)
	if got, err := s.read(t, formSamples, all()); err != nil || len(got) != 1 {
		t.Errorf("got %q, error %v", got, err)
	}
}

// A body that stops in the middle ends soon, and gives back what it holds; one that comes slowly, but does come, is
// taken. The connection is good for the next request, however long that takes.
func TestBodies_HaveALeastRate(t *testing.T) {
	const least = 150 * time.Millisecond
	s := newServer(t, func(c *adapter.Config) { c.Write.LeastTime = least })
	for _, path := range []string{"/api/v1/write", "/api/v1/read"} {
		conn := trickle(t, s, path)
		if _, err := conn.Write(make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || response.StatusCode != 503 {
			t.Errorf("%s: a body that stops: %v, %v; want 503", path, response, err)
		}
	}
	for end := time.Now().Add(time.Minute); s.metric(t,
		"promtsd_write_in_flight_bytes") > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the memory is held for a minute")
		}
	}

	body := block(t, oneV1())
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for range 2 {
		if _,
			err := fmt.Fprintf(conn, "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
			typeV1, len(body)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(least / 3)
		if _, err := conn.Write(body); err != nil {
			t.Fatal(err)
		}
		if response, err := http.ReadResponse(answers, nil); err != nil || response.StatusCode != 204 {
			t.Fatalf("a body that comes: %v, %v; want 204", response, err)
		}
		time.Sleep(2 * least)
	}
}

// A handler that works for longer than a body may take is not ended by that.
func TestBodies_TheirRateEndsWithThem(t *testing.T) {
	const least = 50 * time.Millisecond
	s := newServer(t, func(c *adapter.Config) { c.Write.LeastTime = least })
	late := httptest.NewServer(s.handler.Buffer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(4 * least):
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		}
	})))
	defer late.Close()
	response, err := http.Post(late.URL, "text/plain", strings.NewReader("a body"))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("got %v, %v; want 200", response, err)
	}
}

// An answer that nobody reads ends, and gives back what it holds; one that takes long to make does not.
func TestAnswers_ThatNobodyReadsEnd(t *testing.T) {
	const timeout = 100 * time.Millisecond
	memory, err := budget.New(budget.Config{Total: budget.MinTotal})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(c *adapter.Config) { c.Read.WriteTimeout, c.Memory = timeout, memory })
	failed := make(chan error, 1)
	served := httptest.NewServer(s.handler.Account(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 1<<20)
		if r.URL.Path == "/slow" {
			time.Sleep(2 * timeout)
			_, _ = w.Write(piece)
			time.Sleep(2 * timeout)
			_, _ = w.Write(piece)
			return
		}
		for n := 0; n < 1<<10; n++ {
			if _, err := w.Write(piece); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	})))
	defer served.Close()
	for range 2 { // on one connection
		response, err := served.Client().Get(served.URL + "/slow")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || n != 2<<20 {
			t.Errorf("an answer that takes long to make: %d bytes, %v", n, err)
		}
		time.Sleep(2 * timeout)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(served.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if err == nil {
			t.Error("a gigabyte was written, and nobody read it")
		}
	case <-time.After(time.Minute):
		t.Error("the answer does not end")
	}
}
