package adapter_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/mapping/request"
)

func TestPages(t *testing.T) {
	sick := errors.New("the lease is lost")
	var health, broken error
	s := newStartingServer(t, func(c *adapter.Config) {
		c.Version = "1<2"
		c.Ready = func() error { return health }
		c.Healthy = func() error { return broken }
	})
	want := func(path string, wantCode int, parts ...string) {
		t.Helper()
		code, _, text := s.send(t, http.MethodGet, path, nil)
		if code != wantCode {
			t.Errorf("%s: got status %d, want %d", path, code, wantCode)
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: got %q, want %q in it", path, text, part)
			}
		}
	}
	want("/", 200, "promtsd 1&lt;2", "/api/v1/write", "/api/v1/read", "/metrics", "/-/ready")
	want("/api/v2/write", 404, "remote write is at /api/v1/write")
	want("/metrics", 200, "promtsd_write_in_flight_bytes 0", "promtsd_read_in_flight_requests 0")
	want("/-/healthy", 200, "healthy")
	want("/-/ready", 503, "not ready: starting")
	if code, _, text := s.post(t, "/api/v1/write", nil); code != 503 || !strings.Contains(text, "not ready: starting") {
		t.Errorf("a write before it is ready: got %d %s, want 503", code, text)
	}
	s.handler.SetReady()
	want("/-/ready", 200, "ready")
	health = sick
	want("/-/ready", 503, "not ready: the lease is lost")
	want("/-/healthy", 200, "healthy")
	broken = errors.New("the disk failed")
	want("/-/healthy", 503, "not healthy: the disk failed")
	health, broken = nil, nil
	s.handler.Drain()
	want("/-/ready", 503, "draining")
	want("/-/healthy", 200, "healthy")
	s.handler.SetReady()
	want("/-/ready", 503, "draining")
}

func TestDrain_RefusesNewRequestsAndFinishesOld(t *testing.T) {
	s := newServer(t, nil)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.appender.before = func(context.Context, *request.Write) (request.Result, error) {
		close(entered)
		<-leave
		return request.Result{Written: 1}, nil
	}
	body := block(t, oneV1())
	var old int
	var done sync.WaitGroup
	done.Go(func() { old, _, _ = s.post(t, "/api/v1/write", body) })
	<-entered
	s.handler.Drain()
	for _, path := range []string{"/api/v1/write", "/api/v1/read"} {
		code, header, _ := s.post(t, path, body)
		if code != 503 || header.Get("Retry-After") == "" {
			t.Errorf("%s: got status %d, Retry-After %q while draining, want 503 with one", path, code,
				header.Get("Retry-After"))
		}
	}
	close(leave)
	done.Wait()
	if old != 204 {
		t.Errorf("got status %d for the request under way, want 204", old)
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	full := adapter.Config{Appender: &fakeAppender{}, Querier: &fakeQuerier{}, Gatherer: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler)}
	if _, err := adapter.New(full); err != nil {
		t.Errorf("got error %v for what is required and nothing else", err)
	}
	for want, change := range map[string]func(*adapter.Config){
		"required":                   func(c *adapter.Config) { c.Querier = nil },
		"--write.max-body-bytes":     func(c *adapter.Config) { c.Write.MaxBodyBytes = -1 },
		"--read.max-response-bytes":  func(c *adapter.Config) { c.Read.MaxResponseBytes = 1 << 31 },
		"register metrics":           func(c *adapter.Config) { c.Registerer = takenRegistry(t) },
		"--read.max-concurrent is -": func(c *adapter.Config) { c.Read.MaxConcurrent = -5 },
	} {
		c := full
		change(&c)
		if _, err := adapter.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

func takenRegistry(t *testing.T) prometheus.Registerer {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(prometheus.NewCounter(prometheus.CounterOpts{Name: "promtsd_write_samples_total"})); err != nil {
		t.Fatal(err)
	}
	return r
}
