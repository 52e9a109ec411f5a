package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/promtsd/promtsd/adapter/peer"
)

// listener serves HTTP from the start to the end of a promtsd. At its end it first refuses requests and lets those under way
// finish; then what is held is stored, and other promtsd are still answered for it; then nobody is.
type listener struct {
	web    *web.FlagConfig
	logger *slog.Logger
	drain  time.Duration // for the requests under way, and then for storing what is held, for which a quarter is left at least

	connections *connections

	public  http.Handler                    // what clients ask
	peers   http.Handler                    // what other promtsd ask, at peer.Path
	start   func(ctx context.Context) error // returns when requests can be taken
	started func()                          // has public take them
	refuse  func()                          // has public refuse them
	finish  func(ctx context.Context) error // stores what is held
}

// lastAnswers is how long answers to other promtsd may take when all is stored.
const lastAnswers = 2 * time.Second

// run serves until ctx ends.
func (l listener) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	requests := &underWay{next: l.public}
	all := http.NewServeMux()
	all.Handle("/", requests)
	all.Handle(peer.Path, l.peers)
	server := &http.Server{
		Handler:           all,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // of a whole request: a sender that trickles holds memory
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         l.connections.changed,
		ErrorLog:          slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() {
		err := web.ListenAndServe(server, l.web, l.logger)
		stop()
		served <- err
	}()

	err := l.start(ctx)
	switch {
	case ctx.Err() != nil:
		err = nil // it may not have had the time
	case err != nil:
		err = fmt.Errorf("start the write path: %w", err)
	default:
		l.started()
		<-ctx.Done()
	}
	l.logger.Info("stopping: requests under way are finished, new ones refused")
	l.refuse()
	drain, cancel := context.WithTimeout(context.Background(), l.drain)
	defer cancel()
	if late := requests.finish(drain); late != nil {
		l.logger.Warn("requests were cut off", "err", late, "drain_timeout", l.drain)
		_ = server.Close()
	}
	deadline, _ := drain.Deadline()
	finish, cancel := context.WithTimeout(context.Background(), max(time.Until(deadline), l.drain/4))
	defer cancel()
	err = errors.Join(err, l.finish(finish))
	last, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(fmt.Errorf("serve HTTP: %w", end), err)
	}
	l.logger.Info("stopped")
	return err
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
