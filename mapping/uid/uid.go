// Package uid is the two-way map between names and UIDs: metric names, label names and label values on one side, the
// numbers that stand for them in row keys on the other. It lives in OpenTSDB's UID table and keeps to OpenTSDB's
// protocol of assigning, so that any number of promtsd and OpenTSDB processes may assign in one table at once.
//
// The protocol. An id is taken from the counter of its kind; its reverse cell is written if it is absent; then the
// forward cell of the name is written if it is absent. Whoever finds the forward cell written already uses the UID in
// it, and its own id is lost: nobody gets it again. Since only the forward cell, written last and once, gives an id to
// a name, a UID never changes its meaning, whatever fails between two steps. An id whose reverse cell may have been
// written is kept for that very name, by the process that took it; one of which nothing was written, for any name.
//
// What can change a meaning from outside are OpenTSDB's commands that rename or delete a UID: as with OpenTSDB's own
// processes, restart promtsd after them, because it answers from its caches.
package uid

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/clockcache"
	"github.com/promtsd/promtsd/store"
)

// ErrExhausted marks a name that got no UID because the width of its kind has none left. It is for good: the width is
// part of the schema.
var ErrExhausted = errors.New("UIDs are exhausted")

// Name is a name of a kind, its text as Prometheus knows it: valid UTF-8, or one of mapping's reserved names.
type Name struct {
	Kind mapping.Kind
	Text string
}

// ID is a UID of a kind.
type ID struct {
	Kind mapping.Kind
	UID  mapping.UID
}

// Result is what became of one name of an Assign. If Err is nil, UID is the name's.
//
// Err wraps ErrExhausted; mapping.ErrInvalid for a name that cannot be stored (empty, too long, no valid UTF-8);
// mapping.ErrCorrupt for one whose UID cell, or the counter that it needs, is unreadable; or ErrLimited. Only the last
// goes away by itself, the one before it when somebody has repaired the cell.
type Result struct {
	UID mapping.UID
	Err error
}

// Text is the name of one ID of a Texts. OK is false where the table has none.
type Text struct {
	Text string
	OK   bool
}

// Entry is one name that a Search found.
type Entry struct {
	Text string
	UID  mapping.UID
}

// Config is what a Registry needs.
type Config struct {
	Store  store.Store    // required
	Table  string         // the UID table, with families id and name; required
	Schema mapping.Schema // widths of the UIDs; required
	Names  mapping.Names  // how names are spelt in the table
	Limits Limits         // the zero value is none
	// most entries of each cache, names and UIDs, fewer if texts are long; default 1<<20
	CacheEntries int
	Registerer   prometheus.Registerer // default: metrics are kept but not registered
	Logger       *slog.Logger          // default: none
}

const (
	defaultCacheEntries = 1 << 20

	// maxFlights bounds the assignments under way: they outlive callers that gave up.
	maxFlights = 64

	// flightTimeout bounds one assignment, with room for a store that moves a region.
	flightTimeout = time.Minute
)

// Registry assigns and resolves UIDs. All its methods may be called by many goroutines at once.
type Registry struct {
	table   table
	names   mapping.Names
	logger  *slog.Logger
	metrics *metrics

	uids  *clockcache.Cache[nameKey, mapping.UID] // of stored names, by text
	texts *clockcache.Cache[ID, string]

	exhausted [kinds]atomic.Bool  // the counter has reached the largest UID
	fill      [kinds]atomic.Int32 // percent of the UIDs that are given away, as far as it was told

	newcomers, others *share

	kept kept

	slots chan struct{} // one taken by each flight

	// base is the context of every flight: an assignment serves all who wait for it, not just who began it.
	base context.Context
	stop context.CancelFunc

	mu      sync.Mutex // guards what follows
	pending map[nameKey]*claim
	closed  bool
	flights sync.WaitGroup // Add under mu while not closed
}

// nameKey is a name as a key of maps.
type nameKey struct {
	text string
	kind mapping.Kind
}

const kinds = 3

// New returns a Registry. It does no I/O; the error is that of registering the metrics.
func New(c Config) (*Registry, error) {
	if c.CacheEntries <= 0 {
		c.CacheEntries = defaultCacheEntries
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Limits.Now == nil {
		c.Limits.Now = time.Now
	}
	metrics, err := newMetrics(c.Registerer, c.Schema)
	if err != nil {
		return nil, err
	}
	base, stop := context.WithCancel(context.Background())
	return &Registry{
		newcomers: newShare(c.Limits), others: newShare(c.Limits),
		table:   table{store: c.Store, name: c.Table, schema: c.Schema},
		names:   c.Names,
		logger:  c.Logger,
		metrics: metrics,
		uids:    newCache(c.CacheEntries, hashName, func(k nameKey, _ mapping.UID) int { return len(k.text) }),
		texts:   newCache(c.CacheEntries, hashID, func(_ ID, text string) int { return len(text) }),
		slots:   make(chan struct{}, maxFlights),
		base:    base,
		stop:    stop,
		pending: make(map[nameKey]*claim),
	}, nil
}

// Close ends the assignments under way and waits for them. Assign then fails with store.ErrClosed where a name is not
// cached. It does not close the store.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.flights.Wait()
}
