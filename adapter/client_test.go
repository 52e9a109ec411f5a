package adapter_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter"
)

type addressKey struct{}

// from serves a request as one that came from an address.
func (s *server) from(t *testing.T, address, path string, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), addressKey{}, address), http.MethodPost, path,
		bytes.NewReader(body))
	r.Header.Set("Content-Type", typeV1)
	r.Header.Set("X-Forwarded-For", "192.0.2.99") // which anyone can write
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// Bodies of one client that stall leave memory for those of others.
func TestWrite_OneClientLeavesMemoryToOthers(t *testing.T) {
	const most = 1 << 20
	s := newServer(t, func(c *adapter.Config) { c.Write.MaxInFlightBytes = most })
	for range 2 * most / (20 << 10) {
		trickle(t, s, "/api/v1/write")
	}
	s.awaitInFlight(t, most*7/10)
	if w := s.from(t, "127.0.0.1:80", "/api/v1/write", block(t, oneV1())); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the client itself: got %d %s", w.Code, w.Body)
	}
	for range 3 {
		if w := s.from(t, "192.0.2.7:80", "/api/v1/write", block(t, oneV1())); w.Code != http.StatusNoContent {
			t.Errorf("another client: got %d %s", w.Code, w.Body)
		}
	}
}

// Reads of one client that take long leave a place to others.
func TestRead_OneClientLeavesPlacesToOthers(t *testing.T) {
	s := newServer(t, func(c *adapter.Config) { c.Read.MaxConcurrent = 4 })
	s.querier.series = []fakeSeries{named("a", points(3))}
	leave := make(chan struct{})
	s.querier.gate = func(ctx context.Context) error {
		if ctx.Value(addressKey{}) != "192.0.2.7:80" {
			<-leave
		}
		return nil
	}
	body := block(t, &prompb.ReadRequest{Queries: []*prompb.Query{all()}})
	var slow sync.WaitGroup
	for range 8 {
		slow.Go(func() { s.from(t, "127.0.0.1:80", "/api/v1/read", body) })
	}
	for s.metric(t, "promtsd_read_waiting_requests") < 5 {
	}
	if w := s.from(t, "192.0.2.7:80", "/api/v1/read", body); w.Code != http.StatusOK {
		t.Errorf("another client: got %d %s", w.Code, w.Body)
	}
	close(leave)
	slow.Wait()
}
