// Package pebble is the embedded store.Store: a directory of files kept by CockroachDB's LSM tree of the same name,
// for one process at a time. Beyond the contract of package store it promises that a batch takes effect whole or not at
// all, over all its rows and tables.
//
// Failing disks. When the log that makes writes durable, or the tree's own record of its files, cannot be written, the
// store stops for good: it logs why, every later write is refused with ErrUnavailable, reads go on, and Close returns
// the reason. Opening the directory again recovers all that was acknowledged. When only a flush or a compaction fails,
// a full disk mostly, writes are refused with ErrUnavailable until a flush succeeds; that is tried every second.
package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store"
)

// Config says where and how a Store keeps its data.
type Config struct {
	Dir           string                // the directory, required; made if it is missing
	NoSync        bool                  // do not wait for the disk: the last writes may be lost when the machine stops
	CacheBytes    int64                 // block cache; default 256 MiB
	MemTableBytes uint64                // size of one table in memory, of which there are up to four; default 64 MiB
	Registerer    prometheus.Registerer // where the metrics go; nil: nowhere
	Logger        *slog.Logger          // default: discard
	FS            vfs.FS                // for tests; default: the operating system's
}

// Store is a store.Store on one directory. Close must be called once, and not from within a loop over a Scan.
type Store struct {
	db      *lsm.DB
	lock    *lsm.Lock
	dir     string
	noSync  bool
	log     *slog.Logger
	metrics *metrics
	health  *health

	catalogMu sync.Mutex              // held while tables are made
	catalog   atomic.Pointer[catalog] // replaced, never changed

	// writeMu orders what reads before it writes (exclusive) with plain writes (shared). It is held until a batch is
	// visible, not until it is durable: the log keeps the order, so whoever waits for a later write waits for all before.
	writeMu sync.RWMutex

	gate    sync.Mutex     // guards closed against calls.Add
	closed  bool           // guarded by gate
	calls   sync.WaitGroup // calls of the public methods
	commits sync.WaitGroup // writes under way, which outlive calls whose context ended
}

// Open opens the store in cfg.Dir and makes it if there is none. A directory that another process has open, and one
// that a newer version wrote, are errors.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, fmt.Errorf("open store: %w: no directory given", store.ErrInvalid)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{dir: cfg.Dir, noSync: cfg.NoSync, log: log, health: newHealth(log)}
	if err := s.open(cfg); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", cfg.Dir, err)
	}
	return s, nil
}

func (s *Store) open(cfg Config) error {
	opts := newOptions(cfg, s.health, s.log)
	var err error
	if err = opts.FS.MkdirAll(cfg.Dir, 0o755); err != nil {
		return classify(err)
	}
	if s.lock, err = lsm.LockDirectory(cfg.Dir, opts.FS); err != nil {
		return fmt.Errorf("%w: the directory is in use by another store or process, or cannot be locked: %w",
			store.ErrUnavailable, err)
	}
	opts.Lock = s.lock
	if s.db, err = openTree(cfg.Dir, opts, s.health); err != nil {
		return errors.Join(err, s.lock.Close())
	}
	s.health.arm()
	if err := s.load(cfg); err != nil {
		if !s.health.disarm() {
			return err // as in Close
		}
		return errors.Join(err, s.db.Close(), s.lock.Close())
	}
	return nil
}

// load reads what the store has to know before its first call.
func (s *Store) load(cfg Config) error {
	c, err := s.loadCatalog()
	if err != nil {
		return err
	}
	s.catalog.Store(c)
	s.metrics, err = newMetrics(s, cfg.Registerer)
	return err
}

// openTree opens the tree on a goroutine of its own, because the tree ends the goroutine on which it meets a fatal
// error (see health.Fatalf).
func openTree(dir string, opts *lsm.Options, h *health) (db *lsm.DB, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: the tree gave up: %v", store.ErrUnavailable, p)
			}
		}()
		db, err = lsm.Open(dir, opts)
	}()
	<-ended
	switch {
	case err != nil && db == nil:
		return nil, classify(err)
	case db == nil:
		return nil, h.failure()
	}
	return db, nil
}

// enter counts a call in, unless the store is closed.
func (s *Store) enter() error {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Close implements store.Store. The store of a failed disk is left as it is, with its lock, until the process ends.
func (s *Store) Close() error {
	s.gate.Lock()
	if s.closed {
		s.gate.Unlock()
		return store.ErrClosed
	}
	s.closed = true
	s.gate.Unlock()
	s.calls.Wait()
	s.metrics.unregister()

	idle := make(chan struct{})
	go func() {
		s.commits.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-s.health.failed:
	}
	if !s.health.disarm() {
		return fmt.Errorf("close store in %s: %w", s.dir, s.health.failure())
	}
	if err := errors.Join(classify(s.db.Close()), s.lock.Close()); err != nil {
		return fmt.Errorf("close store in %s: %w", s.dir, err)
	}
	return nil
}

// classify gives an error of the tree its class in package store.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrNoTable), errors.Is(err, store.ErrUnavailable),
		errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrClosed):
		return err
	case errors.Is(err, lsm.ErrClosed):
		return fmt.Errorf("%w: %w", store.ErrClosed, err)
	case lsm.IsCorruptionError(err):
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}
