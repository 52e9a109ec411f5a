// Package recovery sees to it that no acknowledged sample is lost when a process dies. It keeps the lease of this
// process's own journal, takes over the journals of processes that died, and replays entries that have no lease.
//
//	Start     open a journal -> replay the journals of the dead -> requests may come
//	running   keep: renew the lease, record the checkpoint; on a lost lease, begin a new journal
//	          watch: every quarter of a lease TTL, look for leases that ran out; now and then, for entries without one
//	Close     delete the lease; or, if samples are left in the journal, end it for others to take over at once
//
// The package knows nothing of samples: the Appender gives it replayers (see Config). Its locks are those of package
// journal; it calls the Appender with none held.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
)

// Config is what a Recovery needs.
type Config struct {
	Journal journal.Config // First is set by the Recovery
	Write   bool           // this process writes a journal; otherwise it takes over those of others only

	// OldestEntry is the lowest entry of the own journal of which samples are not in the data table yet, as far as they
	// are in memory. It is asked after the entries in flight were.
	OldestEntry func() uint64
	// Lost is called when another process has taken the own journal over, before a new one begins: samples that arrive
	// from now on count over those that are replayed there.
	Lost func()

	// NewReplayer returns what takes the entries of a dead writer's journal, and end, which is called after the last.
	NewReplayer func(samples *atomic.Int64) (r journal.Replayer, end func())
	// NewSingleReplayer returns what takes one entry that has no lease.
	NewSingleReplayer func(samples *atomic.Int64) journal.Replayer
}

// Recovery is described at the package. It is safe for concurrent use after Start.
type Recovery struct {
	config    Config
	journal   atomic.Pointer[journal.Writer]
	replaying atomic.Pointer[replaying]

	watching background
	keeping  background
}

// background is a goroutine that is stopped and waited for.
type background struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

func (b *background) run(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.wait.Go(func() { f(ctx) })
}

func (b *background) stop() {
	if b.cancel != nil {
		b.cancel()
		b.wait.Wait()
	}
}

// ErrNoJournal says that there is no journal to write to, for the moment.
var ErrNoJournal = fmt.Errorf("%w: the journal is not open", store.ErrUnavailable)

// New returns a Recovery that does nothing before Start.
func New(c Config) *Recovery { return &Recovery{config: c} }

// Start opens the own journal, if there is to be one, and takes over the journals that dead processes left. It returns
// when everything that was acknowledged before can be read. ctx bounds the start only.
func (r *Recovery) Start(ctx context.Context) error {
	watch := new(journal.Watch)
	id := journal.ID(rand.Uint64())
	if r.config.Write {
		w, err := journal.Open(ctx, r.journalConfig(1))
		if err != nil {
			return err
		}
		id = w.ID()
		r.journal.Store(w) // others see its lease already, and ask for it
		r.keeping.run(func(ctx context.Context) { r.keep(ctx, w) })
	}
	if err := r.takeOverAll(ctx, watch, id); err != nil {
		r.Abandon()
		return err
	}
	if !r.config.Journal.SingleProcess {
		r.watching.run(func(ctx context.Context) { r.watch(ctx, watch, id) })
	}
	return nil
}

func (r *Recovery) journalConfig(first uint64) journal.Config {
	c := r.config.Journal
	c.First = first
	return c
}

// Journal is the journal to write to; the error wraps ErrNoJournal.
func (r *Recovery) Journal() (*journal.Writer, error) {
	if w := r.journal.Load(); w != nil {
		return w, nil
	}
	return nil, ErrNoJournal
}

// StopWatching stops to look for the journals of others, and waits for a takeover that goes on.
func (r *Recovery) StopWatching() { r.watching.stop() }

// Abandon stops everything, and leaves the lease to run out, as a kill would.
func (r *Recovery) Abandon() {
	r.watching.stop()
	r.keeping.stop()
	r.journal.Store(nil)
}

// leaveTime is how long it may take to leave the journal to others, when the time for flushing is over.
const leaveTime = 2 * time.Second

// Close gives the own journal up, after StopWatching. flushed is the error of flushing all that was in memory:
// without one the journal is deleted; otherwise, or when ctx ends before that is done, it is left to the next start
// or to another process.
func (r *Recovery) Close(ctx context.Context, flushed error) error {
	r.keeping.stop()
	defer r.journal.Store(nil) // not before the lease is deleted: until then others ask for this process's samples
	w := r.journal.Load()
	err := flushed
	switch {
	case w == nil && err == nil:
		return nil
	case err == nil:
		if err = w.Close(ctx); err == nil || ctx.Err() == nil {
			return err
		}
	}
	r.config.Journal.Logger.Warn("not all samples were stored in time: they stay in the journal, and are replayed")
	if ctx.Err() != nil {
		err = nil
	}
	if w != nil && !r.config.Journal.SingleProcess {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		err = errors.Join(err, w.HandOver(leaving, r.checkpoint(w)))
	}
	if err != nil {
		return fmt.Errorf("samples stay in the journal, to be replayed: %w", err)
	}
	return nil
}

// checkpoint is the number below which the samples of all entries are in the data table. It reads the entries in flight
// before the memtable: the reverse can miss one.
func (r *Recovery) checkpoint(w *journal.Writer) uint64 {
	inFlight := w.OldestInFlight()
	return min(inFlight, r.config.OldestEntry())
}

// keep renews the lease of the own journal, and opens another journal if the lease is lost.
func (r *Recovery) keep(ctx context.Context, w *journal.Writer) {
	logger := r.config.Journal.Logger
	for {
		err := w.Run(ctx, func() uint64 { return r.checkpoint(w) })
		if err == nil {
			return
		}
		r.journal.Store(nil)
		r.config.Lost()
		logger.Error("this promtsd was thought to be dead, and another has taken its journal over; beginning a new one",
			"writer", w.ID(), "err", err)
		// Its numbers go on: rows that wait since an entry of the old journal now also wait for later ones of the new.
		first := w.Next()
		for {
			if w, err = journal.Open(ctx, r.journalConfig(first)); err == nil {
				break
			}
			logger.Warn("no journal; requests are rejected", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(r.config.Journal.LeaseTTL / 4):
			}
		}
		r.journal.Store(w)
	}
}

// leases are those of all writers. A row that cannot be read stops nothing: it is removed.
func (r *Recovery) leases(ctx context.Context) ([]journal.Lease, error) {
	c := r.journalConfig(1)
	leases, err := journal.Leases(ctx, c.Store, c.Tables)
	if !errors.Is(err, mapping.ErrCorrupt) {
		return leases, err
	}
	if err := journal.RemoveUnreadableLeases(ctx, c); err != nil {
		return nil, err
	}
	return journal.Leases(ctx, c.Store, c.Tables)
}
