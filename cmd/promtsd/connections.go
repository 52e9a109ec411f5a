package main

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// connections bounds the connections that are open, each of which takes memory whatever comes by it. One too many takes the
// place of the one that was idle for longest; if all have a request under way, it is closed.
type connections struct {
	most    int
	flag    string // of the listener
	logger  *slog.Logger
	refused prometheus.Counter

	mu   sync.Mutex             // guards what follows
	open map[net.Conn]time.Time // since when it is idle; zero: it is not
	told time.Time              // when refusals were last logged
}

// newConnections makes a bound for a listener that a flag is about; registerer may be nil.
func newConnections(most int, flag string, registerer prometheus.Registerer, logger *slog.Logger) *connections {
	c := &connections{most: most, flag: flag, logger: logger, open: make(map[net.Conn]time.Time)}
	listener, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), ".")
	factory := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"listener": listener}, registerer))
	c.refused = factory.NewCounter(prometheus.CounterOpts{
		Name: "promtsd_http_refused_connections_total",
		Help: "Connections that were closed at once, because as many others as are allowed had requests under way.",
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{Name: "promtsd_http_connections", Help: "Connections that are open."}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.open))
	})
	return c
}

// changed is the http.Server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= c.most && !c.closeIdle() {
			c.refuse(conn)
			return
		}
		c.open[conn] = time.Time{}
	case http.StateActive, http.StateIdle:
		if _, ok := c.open[conn]; !ok {
			return // being closed
		}
		c.open[conn] = time.Time{}
		if state == http.StateIdle {
			c.open[conn] = time.Now()
		}
	default:
		delete(c.open, conn)
	}
}

// closeIdle closes the connection that was idle for longest, and says whether there was one. mu must be locked.
func (c *connections) closeIdle() bool {
	var oldest net.Conn
	for conn, since := range c.open {
		if !since.IsZero() && (oldest == nil || since.Before(c.open[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	delete(c.open, oldest)
	closeNow(oldest)
	return true
}

// refuse closes a connection that is one too many. mu must be locked.
func (c *connections) refuse(conn net.Conn) {
	c.refused.Inc()
	if time.Since(c.told) > time.Minute {
		c.told = time.Now()
		c.logger.Warn("connections are closed as they come: all that are allowed have requests under way", "flag", c.flag,
			"max", c.most, "from", conn.RemoteAddr())
	}
	closeNow(conn)
}

// closeNow closes a connection without TLS's farewell, for which it might have to wait.
func closeNow(conn net.Conn) {
	if inner, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = inner.NetConn()
	}
	_ = conn.Close()
}
