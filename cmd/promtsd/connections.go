package main

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/store/metricset"
)

// connections bounds the connections that are open, each of which takes memory whatever comes by it, and how many of
// them come from one client, see fair. One too many takes the place of the one that was idle for longest; if there is
// none, it is closed.
type connections struct {
	most    int
	flag    string // of the listener
	logger  *slog.Logger
	refused prometheus.Counter

	mu   sync.Mutex // guards what follows
	open map[net.Conn]connection
	idle int
	of   map[string]*connectionsOf // by client
	told time.Time                 // when refusals were last logged
}

// connectionsOf is how many connections a client has.
type connectionsOf struct{ open, idle int }

// connection is what is known of one.
type connection struct {
	client string
	idle   time.Time // since when it is; zero: it is not
}

// newConnections makes a bound for a listener that a flag is about; registerer may be nil. The error is that of
// registering the metrics.
func newConnections(
	most int, flag string, registerer prometheus.Registerer, logger *slog.Logger,
) (*connections, error) {
	c := &connections{most: most, flag: flag, logger: logger, open: make(map[net.Conn]connection),
		of: make(map[string]*connectionsOf)}
	var set metricset.Set
	c.refused = set.Counter("promtsd_http_refused_connections_total",
		"Connections that were closed at once, because as many others as are allowed, in all or of their client, had "+
			"requests under way.")
	set.GaugeFunc("promtsd_http_connections", "Connections that are open.", func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.open))
	})
	if registerer != nil {
		listener, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), ".")
		registerer = prometheus.WrapRegistererWith(prometheus.Labels{"listener": listener}, registerer)
	}
	return c, set.Register(registerer)
}

// changed is the http.Server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known := c.open[conn]
	switch state {
	case http.StateNew:
		is.client = fair.Client(conn.RemoteAddr().String())
		if !c.makeRoom(is.client) {
			c.refuse(conn)
			return
		}
		if c.of[is.client] == nil {
			c.of[is.client] = new(connectionsOf)
		}
		c.of[is.client].open++
		c.open[conn] = is
	case http.StateActive, http.StateIdle:
		if !known {
			return // being closed
		}
		c.setIdle(conn, state == http.StateIdle)
	default:
		if known {
			c.remove(conn)
		}
	}
}

// setIdle notes whether a connection is idle. mu must be locked, as for all that follow.
func (c *connections) setIdle(conn net.Conn, idle bool) {
	is := c.open[conn]
	if !is.idle.IsZero() {
		c.idle--
		c.of[is.client].idle--
	}
	if is.idle = (time.Time{}); idle {
		is.idle = time.Now()
		c.idle++
		c.of[is.client].idle++
	}
	c.open[conn] = is
}

// remove forgets a connection.
func (c *connections) remove(conn net.Conn) {
	c.setIdle(conn, false)
	client := c.open[conn].client
	delete(c.open, conn)
	if c.of[client].open--; c.of[client].open == 0 {
		delete(c.of, client)
	}
}

// makeRoom makes room for one more connection of a client, and says whether there is.
func (c *connections) makeRoom(client string) bool {
	if own := c.of[client]; own != nil {
		free := c.most - (len(c.open) - (c.idle - own.idle)) // what others leave idle is as good as free
		if !fair.Share(int64(own.open+1), int64(free-1)) {
			return c.closeIdle(client)
		}
	}
	return len(c.open) < c.most || c.closeIdle("")
}

// closeIdle closes the connection that was idle for longest, of a client unless that is empty, and says whether there
// was one.
func (c *connections) closeIdle(client string) bool {
	var oldest net.Conn
	for conn, is := range c.open {
		if !is.idle.IsZero() && (client == "" || is.client == client) &&
			(oldest == nil || is.idle.Before(c.open[oldest].idle)) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	c.remove(oldest)
	closeNow(oldest)
	return true
}

// refuse closes a connection that is one too many.
func (c *connections) refuse(conn net.Conn) {
	c.refused.Inc()
	if time.Since(c.told) > time.Minute {
		c.told = time.Now()
		c.logger.Warn(
			"connections are closed as they come: all that are allowed, in all or of one client, have requests under way",
			"flag", c.flag,
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
