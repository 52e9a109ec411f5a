// Package pebble is the embedded store.Store: a directory of files kept by CockroachDB's LSM tree of the same name,
// for one process at a time. Beyond the contract of package store it promises that a batch takes effect whole or not at
// all, over all its rows and tables. Log tables (see store.Table) have a tree and a directory of their own, so a batch
// must keep to one of them, or to tables that are none.
//
// Disks in trouble.
//
//	little room is left      Writable says so: what is new is to be refused. Writes are taken still, for what is stored
//	                         already: flushes and deletes, which make room
//	no room at all           writes are refused with ErrUnavailable; those under way wait in the tree, with nothing lost
//	tables cannot be written writes are refused with ErrUnavailable; the tree tries again every second
//	no answer                after ten seconds writes are refused with ErrUnavailable, until one of those under way ends.
//	                         At most 64 MiB of writes are under way, those included whose callers gave up
//	the log cannot be        the store stops for good (Failed): writes are refused with ErrUnavailable, and Close returns
//	written or synced        the reason. Opening the directory again recovers all that was acknowledged
//
// Reads go on in all of these, as far as the disk answers them.
package pebble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store"
)

// Config says where and how a Store keeps its data.
type Config struct {
	Dir           string                // the directory, required; made if it is missing
	NoSync        bool                  // do not wait for the disk: the last second may be lost when the machine stops
	CacheBytes    int64                 // block cache; default 256 MiB
	MemTableBytes uint64                // size of a memtable, of which there are up to four; default 32 MiB
	Packing       Packing               // how long cells are made smaller on disk; default: they are not
	Registerer    prometheus.Registerer // where the metrics go; nil: nowhere
	Logger        *slog.Logger          // default: discard
	FS            vfs.FS                // for tests; default: the operating system's
	Now           func() time.Time      // the clock of mutations without a timestamp; default time.Now
	Report        func(error)           // told, now and then, why Open waits or writes are not taken; nil: they are

	hungAfter time.Duration // for tests; default: the constant
}

// Store is a store.Store and a store.RangeDeleter on one directory. Close must be called once, and not from within a
// loop over a Scan.
type Store struct {
	cfg        Config
	data       *tree
	log        atomic.Pointer[tree] // of the log tables; nil until there is one
	lock       *lsm.Lock
	disk       vfs.FS
	logger     *slog.Logger
	unregister func() // takes the metrics away
	health     *health
	pending    pendingWrites

	catalogMu sync.Mutex              // held while tables are made
	catalog   atomic.Pointer[catalog] // replaced, never changed
	dropped   droppedRanges           // ranges whose space is to be given back

	gate    sync.Mutex     // guards closed against calls.Add
	closed  bool           // guarded by gate
	calls   sync.WaitGroup // calls of the public methods
	commits sync.WaitGroup // writes under way, which outlive calls whose context ended, and work in the background
	watches sync.WaitGroup // what runs until ctx ends
	ctx     context.Context
	end     context.CancelFunc // ends ctx and with it the work in the background
}

// Open opens the store in cfg.Dir and makes it if there is none. A directory that another process has open, and one
// that a newer version wrote, are errors. Where the disk is full it waits for room.
func Open(cfg Config) (*Store, error) { return OpenContext(context.Background(), cfg) }

// OpenContext is Open, and gives up when ctx ends; the directory stays locked then, until the process ends.
func OpenContext(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, fmt.Errorf("open store: %w: no directory given", store.ErrInvalid)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.FS == nil {
		cfg.FS = vfs.Default
	}
	cfg.hungAfter = cmp.Or(cfg.hungAfter, hungAfter)
	s := &Store{cfg: cfg, logger: cfg.Logger, health: newHealth(cfg.Logger, cfg.Report)}
	s.ctx, s.end = context.WithCancel(context.Background())
	opened := make(chan error, 1)
	go func() { opened <- s.open() }()
	err := s.awaitOpen(ctx, opened)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("open store in %s: %w", cfg.Dir, err)
	}
	return s, nil
}

// awaitOpen waits for open, which does not come back from a failure of the disk that it meets when the first tree is
// open (see health.stop).
func (s *Store) awaitOpen(ctx context.Context, opened <-chan error) error {
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
	case <-s.health.failed:
	}
	select {
	case err := <-opened:
		return err
	case <-time.After(blockedGrace):
	}
	err := s.health.check()
	switch {
	case ctx.Err() == nil:
		return err
	case err == nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

func (s *Store) open() error {
	opts := dataOptions(s.cfg, s.health)
	s.disk = &diskFS{FS: s.cfg.FS, health: s.health}
	var err error
	if err = s.disk.MkdirAll(s.cfg.Dir, 0o750); err != nil {
		return classify(err)
	}
	if s.lock, err = lsm.LockDirectory(s.cfg.Dir, s.disk); err != nil {
		return fmt.Errorf("%w: the directory is in use by another store or process, or cannot be locked: %w",
			store.ErrUnavailable, err)
	}
	opts.Lock = s.lock
	if s.data, err = openTree("data", s.cfg.Dir, opts, s.health, s.newLazyFS()); err != nil {
		return errors.Join(err, s.lock.Close())
	}
	s.health.arm()
	if err := s.load(); err != nil {
		if !s.health.disarm() {
			return err // as in Close
		}
		return errors.Join(err, s.closeTrees(), s.lock.Close())
	}
	s.watch(s.watchProgress)
	s.watch(s.watchRoom)
	return nil
}

// newLazyFS makes that of a tree, if the store is one without syncs.
func (s *Store) newLazyFS() *lazyFS {
	if !s.cfg.NoSync {
		return nil
	}
	l := &lazyFS{FS: s.cfg.FS, health: s.health, logs: make(map[*lazyFile]struct{})}
	s.watch(l.run)
	return l
}

// load reads what the store has to know before its first call.
func (s *Store) load() error {
	c, err := s.loadCatalog()
	if err != nil {
		return err
	}
	s.catalog.Store(c)
	if c.hasLog() {
		if err := s.openLog(); err != nil {
			return err
		}
	}
	s.unregister, err = register(s, s.cfg.Registerer)
	return err
}

// openLog opens the tree of the log tables, or makes it, if it is not open.
func (s *Store) openLog() error {
	if s.log.Load() != nil {
		return nil
	}
	opts := logOptions(s.cfg, s.health)
	t, err := openTree(logDir, opts.FS.PathJoin(s.cfg.Dir, logDir), opts, s.health, s.newLazyFS())
	if err != nil {
		return fmt.Errorf("open log tables: %w", err)
	}
	t.data = s.data
	if t.reaper, err = newReaper(s.ctx, t, logMemTable(s.cfg), s.background); err != nil {
		return errors.Join(err, t.close())
	}
	s.log.Store(t)
	return nil
}

// trees lists those that are open.
func (s *Store) trees() []*tree {
	if log := s.log.Load(); log != nil {
		return []*tree{s.data, log}
	}
	return []*tree{s.data}
}

// treeOf is the tree that holds a table.
func (s *Store) treeOf(t *table) *tree {
	if t.log {
		return s.log.Load()
	}
	return s.data
}

// cellEncoder makes one for the store's cells.
func (s *Store) cellEncoder() cellEncoder {
	return cellEncoder{columner: columner{secret: s.catalog.Load().secret}, packing: s.cfg.Packing}
}

func (s *Store) closeTrees() error {
	var errs []error
	for _, t := range s.trees() {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// background runs f on a goroutine of its own, which Close waits for. Its caller is something that Close waits for.
func (s *Store) background(f func() error) {
	s.commits.Add(1)
	go func() {
		defer s.commits.Done()
		defer s.recoverWrite()
		if err := f(); err != nil && s.ctx.Err() == nil {
			s.logger.Warn("background work on the store failed; what it was to free is freed later", "err", err)
		}
	}()
}

// watch runs f, on a goroutine of its own, until the store is closed.
func (s *Store) watch(f func(context.Context)) { s.watches.Go(func() { f(s.ctx) }) }

// recoverWrite is deferred by goroutines that change a tree: a panic leaves the tree's locks held, and then nothing can
// be written any more.
func (s *Store) recoverWrite() {
	if p := recover(); p != nil {
		s.logger.Error("store panicked in a write", "panic", p, "stack", string(debug.Stack()))
		s.health.fail(fmt.Errorf("panic in a write: %v", p))
	}
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

// Writable says why new data should not be written at present, nil if there is no reason.
func (s *Store) Writable() error { return s.health.writable() }

// Failed is closed when the store has stopped taking writes for good: only opening it again, in another process, helps.
func (s *Store) Failed() <-chan struct{} { return s.health.failed }

const (
	closeWait    = 30 * time.Second // for calls under way, flushes and compactions
	blockedGrace = time.Second      // the same where the disk takes no writes
)

// Close implements store.Store. It does not wait long for a disk that takes no writes, and leaves the store of such a
// disk as it is, with its lock, until the process ends: the next Open recovers what was acknowledged.
func (s *Store) Close() error {
	s.gate.Lock()
	if s.closed {
		s.gate.Unlock()
		return store.ErrClosed
	}
	s.closed = true
	s.gate.Unlock()
	s.end()
	closed := make(chan error, 1)
	go func() { closed <- s.close() }()
	if err := s.awaitClose(closed); err != nil {
		return fmt.Errorf("close store in %s: %w", s.cfg.Dir, err)
	}
	return nil
}

func (s *Store) close() error {
	s.calls.Wait()
	s.unregister()
	s.commits.Wait()
	s.watches.Wait()
	s.clearLog()
	if !s.health.disarm() {
		return s.health.failure()
	}
	return errors.Join(s.closeTrees(), s.lock.Close())
}

func (s *Store) awaitClose(closed <-chan error) error {
	late, stalling := time.After(closeWait), s.health.stalling()
	for {
		select {
		case err := <-closed:
			return err
		case <-s.health.failed:
			return s.health.failure()
		case <-stalling:
			late, stalling = time.After(blockedGrace), nil
		case <-late:
			cause := s.health.check()
			if cause == nil {
				cause = errors.New("what was under way did not end in time")
			}
			s.health.fail(cause)
			return cause
		}
	}
}

// clearLog gives the space of a log without cells back.
func (s *Store) clearLog() {
	log := s.log.Load()
	if log == nil || s.health.check() != nil {
		return
	}
	if err := log.reaper.clear(); err != nil {
		s.logger.Warn("the space of the log is not given back; it will be when the store is opened", "err", err)
	}
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
