package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

// listener serves HTTP from the start to the end of a promtsd. Until there is a service, it says what is waited for. At
// the end of the service it first refuses requests and lets those under way finish; then what is held is stored; then
// nobody is answered.
type listener struct {
	web    *web.FlagConfig
	logger *slog.Logger
	// for the requests under way, and then for storing what is held, for which a quarter is left at least
	drain       time.Duration
	connections *connections
	metrics     http.Handler // answers /metrics until there is a service

	server  *http.Server
	handler atomic.Pointer[http.Handler]
	waits   atomic.Pointer[string] // for what, until there is a service
	served  chan error
}

// service is what a listener serves.
type service struct {
	public  http.Handler                    // what clients ask
	start   func(ctx context.Context) error // returns when requests can be taken
	started func()                          // has public take them
	refuse  func()                          // has public refuse them
	finish  func(ctx context.Context) error // stores what is held
}

// errStarting is what is waited for where nothing else is said.
var errStarting = errors.New("starting")

// lastAnswers is how long answers may take when all is stored.
const lastAnswers = 2 * time.Second

// listen begins to serve. What follows ends with the context that it returns, which ends also when nothing can be
// served.
func (l *listener) listen(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	l.waitFor(errStarting.Error())
	l.setHandler(http.HandlerFunc(l.serveStarting))
	l.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			(*l.handler.Load()).ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // of a whole request: a sender that trickles holds memory
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         l.connections.changed,
		ErrorLog:          slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug),
	}
	l.served = make(chan error, 1)
	go func() {
		err := web.ListenAndServe(l.server, l.web, l.logger)
		stop()
		l.served <- err
	}()
	return ctx
}

func (l *listener) setHandler(h http.Handler) { l.handler.Store(&h) }

// waitFor says what is waited for.
func (l *listener) waitFor(what string) { l.waits.Store(&what) }

// serveStarting answers until there is a service.
func (l *listener) serveStarting(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/-/healthy":
		fmt.Fprintln(w, "promtsd is healthy.")
	case "/metrics":
		l.metrics.ServeHTTP(w, r)
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "promtsd is not ready: "+*l.waits.Load(), http.StatusServiceUnavailable)
	}
}

// run serves until ctx ends.
func (l *listener) run(ctx context.Context, s service) error {
	requests := &underWay{next: s.public}
	l.setHandler(requests)

	err := s.start(ctx)
	switch {
	case ctx.Err() != nil:
		err = nil // it may not have had the time
	case err != nil:
		err = fmt.Errorf("start the write path: %w", err)
	default:
		s.started()
		<-ctx.Done()
	}
	l.logger.Info("stopping: requests under way are finished, new ones refused")
	s.refuse()
	drain, cancel := context.WithTimeout(context.Background(), l.drain)
	defer cancel()
	if late := requests.finish(drain); late != nil {
		l.logger.Warn("requests were cut off", "err", late, "drain_timeout", l.drain)
		_ = l.server.Close()
	}
	deadline, _ := drain.Deadline()
	finish, cancel := context.WithTimeout(context.Background(), max(time.Until(deadline), l.drain/4))
	defer cancel()
	return errors.Join(err, s.finish(finish))
}

// close ends what listen began, and tells why it ended before, if it did.
func (l *listener) close() error {
	last, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if l.server.Shutdown(last) != nil {
		_ = l.server.Close()
	}
	l.logger.Info("stopped")
	if end := <-l.served; !errors.Is(end, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", end)
	}
	return nil
}

// underWay counts the requests under way.
type underWay struct {
	next http.Handler

	mu      sync.Mutex
	closing bool // guarded by mu; requests that come now are not counted
	count   sync.WaitGroup
}

// ServeHTTP serves one request.
func (u *underWay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	counted := !u.closing
	if counted {
		u.count.Add(1)
	}
	u.mu.Unlock()
	if counted {
		defer u.count.Done()
	}
	u.next.ServeHTTP(w, r)
}

// finish returns when the requests that were under way have ended, or with the error of ctx.
func (u *underWay) finish(ctx context.Context) error {
	u.mu.Lock()
	u.closing = true
	u.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		u.count.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
