package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
)

// Start takes over the journals that writers left behind, and on the journal road opens a journal of its own and begins
// to flush. It returns when the Appender takes requests and everything acknowledged before can be read. ctx bounds the
// start only.
func (a *Appender) Start(ctx context.Context) error {
	if err := a.startAhead(ctx); err != nil {
		return err
	}
	watch := new(journal.Watch)
	id := journal.ID(rand.Uint64())
	keeping, stopKeeping := context.WithCancel(context.Background())
	a.stopKeeping = stopKeeping
	if a.Hold.Time > 0 {
		w, err := journal.Open(ctx, a.journalConfig(1))
		if err != nil {
			return err
		}
		id = w.ID()
		a.journal.Store(w) // others see its lease already, and ask for it
		a.kept.Go(func() { a.keep(keeping, w) })
	}
	if err := a.takeOverAll(ctx, watch, id); err != nil {
		stopKeeping()
		a.kept.Wait()
		a.journal.Store(nil)
		return err
	}
	running, stop := context.WithCancel(context.Background())
	a.stop = stop
	if a.Hold.Time > 0 {
		for lane := range a.lanes {
			a.stopped.Go(func() { a.flushInTurn(running, lane) })
		}
	}
	if !a.Alone {
		a.stopped.Go(func() { a.takeOverDead(running, watch, id) })
	}
	return nil
}

// Ready says why requests cannot be taken at the moment, nil if they can.
func (a *Appender) Ready() error {
	if a.Hold.Time == 0 {
		return nil
	}
	w := a.journal.Load()
	if w == nil {
		return errNoJournal
	}
	return w.Ready()
}

// Writer is the name of the journal that is written now, 0 if there is none.
func (a *Appender) Writer() journal.ID {
	if w := a.journal.Load(); w != nil {
		return w.ID()
	}
	return 0
}

// leaveTime is how long it may take to leave the journal to others, when the time for flushing is over.
const leaveTime = 2 * time.Second

// Close flushes what is held, as far as ctx allows, and gives the journal up. Appends must have ended. What is not
// flushed stays in the journal, which the next start, or another promtsd at once, takes over. An error is the store's.
func (a *Appender) Close(ctx context.Context) error {
	if a.stop == nil {
		return nil
	}
	a.stop()
	a.stopped.Wait()
	err := a.flushAll(ctx)
	a.stopKeeping()
	a.kept.Wait()
	defer a.journal.Store(nil) // not before the lease is gone: until then others ask for this writer's samples
	w := a.journal.Load()
	switch {
	case w == nil && err == nil:
		return nil
	case err == nil:
		if err = w.Close(ctx); err == nil || ctx.Err() == nil {
			return err
		}
	}
	a.Logger.Warn("not all samples were stored in time: they stay in the journal, and are replayed", "bytes",
		a.table.held.Load())
	if ctx.Err() != nil {
		err = nil
	}
	if w != nil && !a.Alone {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		err = errors.Join(err, w.HandOver(leaving, a.frontier(w)))
	}
	if err != nil {
		return fmt.Errorf("samples stay in the journal, to be replayed: %w", err)
	}
	return nil
}

func (a *Appender) journalConfig(first uint64) journal.Config {
	return journal.Config{
		Store: a.Store, Tables: a.Settings.Tables, Address: a.Hold.Address, LeaseTTL: a.Hold.Term, SingleProcess: a.Alone,
		Logger: a.Logger,
		First:  first, Future: a.Limits.Future,
	}
}

// keep keeps the journal, and opens another if its lease is lost.
func (a *Appender) keep(ctx context.Context, w *journal.Writer) {
	for {
		err := w.Run(ctx, func() uint64 { return a.frontier(w) })
		if err == nil {
			return
		}
		a.journal.Store(nil)
		a.cache.gave(a.arrive(0) + 2) // what comes from now on counts over what is replayed, see replayer.Replay
		a.Logger.Error("this promtsd was thought to be dead, and another has taken its journal over; beginning a new one",
			"writer", w.ID(), "err", err)
		// Its numbers go on: rows that wait since an entry of the old journal now also wait for later ones of the new.
		first := w.Next()
		for {
			if w, err = journal.Open(ctx, a.journalConfig(first)); err == nil {
				break
			}
			a.Logger.Warn("no journal; requests are turned away", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(a.Hold.Term / 4):
			}
		}
		a.journal.Store(w)
	}
}

// leases are those of all writers. What is none in their place stops nothing.
func (a *Appender) leases(ctx context.Context) ([]journal.Lease, error) {
	leases, err := journal.Leases(ctx, a.Store, a.Settings.Tables)
	if !errors.Is(err, mapping.ErrCorrupt) {
		return leases, err
	}
	if err := journal.RemoveUnreadableLeases(ctx, a.journalConfig(1)); err != nil {
		return nil, err
	}
	return journal.Leases(ctx, a.Store, a.Settings.Tables)
}

// takeOverAll takes over the journals of all writers that were there before this one and are dead, and waits until it
// is clear which are.
func (a *Appender) takeOverAll(ctx context.Context, watch *journal.Watch, id journal.ID) error {
	before, err := a.leases(ctx)
	if err != nil {
		return err
	}
	beats := make(map[journal.ID]uint64)
	for _, l := range before {
		if l.Writer != id {
			beats[l.Writer] = l.Revision
		}
	}
	if len(beats) > 0 && !a.Alone {
		a.Logger.Info("waiting to see which of the other writers are alive", "writers", len(beats))
	}
	for len(beats) > 0 {
		leases, err := a.leases(ctx)
		if err != nil {
			return err
		}
		unclear := make(map[journal.ID]uint64)
		for _, l := range leases {
			if beat, ok := beats[l.Writer]; ok && (a.Alone || beat == l.Revision) {
				unclear[l.Writer] = beat
			}
		}
		if beats = unclear; len(beats) == 0 {
			break
		}
		dead := watch.Expired(leases, time.Now(), a.Hold.Term)
		if a.Alone {
			dead = leases
		}
		tried := false
		for _, l := range dead {
			if l.Writer == id {
				continue
			}
			tried = true
			if err := a.takeOver(ctx, l, id); err != nil {
				return err
			}
		}
		if a.Alone {
			break
		}
		if tried {
			continue // it may have been the last
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.Hold.Term / 10):
		}
	}
	return a.replayOrphans(ctx)
}

// orphansAfter is how many lease times pass between two looks for entries without a lease. After a journal was taken
// over it is one: what its writer had under way comes in then.
const orphansAfter = 20

// takeOverDead takes over the journals of writers that die, and replays entries without a lease.
func (a *Appender) takeOverDead(ctx context.Context, watch *journal.Watch, id journal.ID) {
	tick := time.NewTicker(a.Hold.Term / 4)
	defer tick.Stop()
	look := time.Now().Add(a.Hold.Term * orphansAfter)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		leases, err := a.leases(ctx)
		if err != nil {
			a.Logger.Warn("cannot see which writers are alive; trying again", "err", err)
			*watch = journal.Watch{} // they may not have been able to show it
			continue
		}
		for _, l := range watch.Expired(leases, time.Now(), a.Hold.Term) {
			if w := a.journal.Load(); w != nil && w.ID() == l.Writer {
				continue
			}
			if err := a.takeOver(ctx, l, id); err != nil && ctx.Err() == nil {
				a.Logger.Error("journal not taken over; trying again", "writer", l.Writer, "err", err)
			}
			look = time.Now().Add(a.Hold.Term)
		}
		if time.Now().After(look) {
			look = time.Now().Add(a.Hold.Term * orphansAfter)
			if err := a.replayOrphans(ctx); err != nil && ctx.Err() == nil {
				a.Logger.Error("entries without a lease not replayed; trying again", "err", err)
			}
		}
	}
}

// replayOrphans replays entries without a lease.
func (a *Appender) replayOrphans(ctx context.Context) error {
	var samples atomic.Int64
	done, err := journal.ReplayOrphans(ctx, a.journalConfig(1), func() journal.Replayer {
		return &replayer{a: a.apart(), single: true, samples: &samples}
	})
	if done.Entries+done.Quarantined > 0 {
		a.Logger.Warn("replayed journal entries without a lease", "entries", done.Entries, "bytes", done.Bytes,
			"samples", samples.Load(), "quarantined", done.Quarantined)
	}
	return err
}

// apart is an Appender for a replay whose samples are not to be mixed with what comes meanwhile: they get cells of
// their own, with the times at which they came. It uses a quarter of the memory that this one may.
func (a *Appender) apart() *Appender {
	c := a.Config
	c.Registerer = nil
	c.Limits.Active = 0 // what another was sent is active there
	c.CacheSize /= 4
	c.Hold.MaxMemory /= 2 // from half of it on it stores early
	other := New(c)
	other.ahead = a.ahead
	return other
}

// takeOver takes over the journal of a writer that is dead.
func (a *Appender) takeOver(ctx context.Context, l journal.Lease, id journal.ID) error {
	begin := time.Now()
	var samples atomic.Int64
	r := &replayer{a: a, samples: &samples}
	if !a.Alone {
		r.a = a.apart() // samples that came here since are later than those of the journal
		part := r.a.Hold.MaxMemory / 2
		a.table.held.Add(part) // this one has less meanwhile
		defer a.table.held.Add(-part)
	}
	defer a.replaying.Store(nil)
	done, ok, err := journal.TakeOver(ctx, a.journalConfig(1), l, id, r, func(done journal.Replayed) {
		a.replaying.Store(&replaying{l.Writer, done})
		elapsed := time.Since(begin)
		attrs := []any{"writer", l.Writer, "entries", done.Entries, "of", done.Total, "bytes", done.Bytes, "samples",
			samples.Load(),
			"elapsed", elapsed.Round(time.Millisecond)}
		if done.Entries > 0 {
			left := time.Duration(float64(elapsed) * float64(done.Total-done.Entries) / float64(done.Entries))
			attrs = append(attrs, "left", left.Round(time.Second))
		}
		a.Logger.Info("replaying a journal", attrs...)
	})
	if errors.Is(err, journal.ErrLost) {
		a.Logger.Warn("another promtsd goes on with a journal that was being taken over here", "writer", l.Writer, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	if ok {
		a.Logger.Info("took a journal over", "writer", l.Writer, "entries", done.Entries, "bytes", done.Bytes,
			"samples", samples.Load(), "quarantined", done.Quarantined, "elapsed", time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

// replaying is how far a replay is.
type replaying struct {
	writer journal.ID
	done   journal.Replayed
}

// Replaying says which journal is being replayed, and how far that is; empty: none is.
func (a *Appender) Replaying() string {
	r := a.replaying.Load()
	if r == nil {
		return ""
	}
	return fmt.Sprintf("replaying the journal of writer %s, %d of %d entries", r.writer, r.done.Entries, r.done.Total)
}

// entriesLeft is how many entries are still to be replayed.
func (a *Appender) entriesLeft() float64 {
	r := a.replaying.Load()
	if r == nil {
		return 0
	}
	return float64(max(0, r.done.Total-r.done.Entries-r.done.Quarantined))
}
