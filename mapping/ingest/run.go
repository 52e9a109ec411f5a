package ingest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
)

// Start takes over the journals that writers left behind, and on the journal road opens a journal of its own and begins to
// flush. It returns when the Appender takes requests and everything acknowledged before can be read. ctx bounds the
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
	return w.Check()
}

// Writer is the name of the journal that is written now, 0 if there is none.
func (a *Appender) Writer() journal.ID {
	if w := a.journal.Load(); w != nil {
		return w.ID()
	}
	return 0
}

// Close flushes what is held and gives the journal up. Appends must have ended. What cannot be flushed before ctx ends
// stays in the journal, which the next start, or another promtsd, takes over.
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
	if err != nil {
		return fmt.Errorf("samples stay in the journal, to be replayed: %w", err)
	}
	if w := a.journal.Load(); w != nil {
		return w.Close(ctx)
	}
	return nil
}

func (a *Appender) journalConfig(first uint64) journal.Config {
	return journal.Config{
		Store: a.Store, Tables: a.Settings.Tables, Address: a.Hold.Address, Term: a.Hold.Term, Logger: a.Logger, First: first,
		Future: a.Limits.Future,
	}
}

// keep keeps the journal, and opens another if its lease is lost.
func (a *Appender) keep(ctx context.Context, w *journal.Writer) {
	for {
		err := w.Keep(ctx, func() uint64 { return a.frontier(w) })
		if err == nil {
			return
		}
		a.journal.Store(nil)
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

// takeOverAll takes over the journals of all writers that were there before this one and are dead, and waits until it is
// clear which are.
func (a *Appender) takeOverAll(ctx context.Context, watch *journal.Watch, id journal.ID) error {
	before, err := journal.Leases(ctx, a.Store, a.Settings.Tables)
	if err != nil {
		return err
	}
	beats := make(map[journal.ID]uint64)
	for _, l := range before {
		if l.Writer != id {
			beats[l.Writer] = l.Beat
		}
	}
	if len(beats) > 0 && !a.Alone {
		a.Logger.Info("waiting to see which of the other writers are alive", "writers", len(beats), "at_most", a.Hold.Term*5/4)
	}
	for len(beats) > 0 {
		leases, err := journal.Leases(ctx, a.Store, a.Settings.Tables)
		if err != nil {
			return err
		}
		unclear := make(map[journal.ID]uint64)
		for _, l := range leases {
			if beat, ok := beats[l.Writer]; ok && (a.Alone || beat == l.Beat) {
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
		for _, l := range dead {
			if l.Writer == id {
				continue
			}
			if err := a.takeOver(ctx, l, id); err != nil {
				return err
			}
		}
		if a.Alone {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.Hold.Term / 10):
		}
	}
	if err := journal.RemoveOrphans(ctx, a.Store, a.Settings.Tables); !errors.Is(err, store.ErrNoTable) {
		return err
	}
	return nil // never was a journal here
}

// takeOverDead takes over the journals of writers that die.
func (a *Appender) takeOverDead(ctx context.Context, watch *journal.Watch, id journal.ID) {
	tick := time.NewTicker(a.Hold.Term / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		leases, err := journal.Leases(ctx, a.Store, a.Settings.Tables)
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
		}
	}
}

// takeOver takes over the journal of a writer that is dead.
func (a *Appender) takeOver(ctx context.Context, l journal.Lease, id journal.ID) error {
	begin := time.Now()
	r := &replayer{a: a}
	if !a.Alone {
		// Samples that came here since are later than those of the journal, and must stay so: what is replayed gets cells of
		// its own, with the timestamps of its time.
		c := a.Config
		c.Registerer = nil
		r.a = New(c)
		if err := r.a.startAhead(ctx); err != nil {
			return err
		}
	}
	done, ok, err := journal.Adopt(ctx, a.journalConfig(1), l, id, r, func(done journal.Adopted) {
		a.Logger.Info("replaying a journal", "writer", l.Writer, "entries", done.Entries, "bytes", done.Bytes,
			"samples", r.samples, "elapsed", time.Since(begin).Round(time.Millisecond))
	})
	if err != nil {
		return err
	}
	if ok {
		a.Logger.Info("took a journal over", "writer", l.Writer, "entries", done.Entries, "bytes", done.Bytes,
			"samples", r.samples, "quarantined", done.Quarantined, "elapsed", time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

// replayer puts the samples of a journal that is taken over where those of requests go.
type replayer struct {
	a       *Appender
	req     mapping.WriteRequest
	job     job
	flat    []byte
	samples int
}

// Replay implements journal.Replayer.
func (r *replayer) Replay(ctx context.Context, e *journal.Entry) error {
	a := r.a
	err := r.decode(e)
	if err != nil {
		return err
	}
	r.req.NeedMetricName = e.NeedMetricName
	// The cells shall count over those that were flushed in the very millisecond in which the request came.
	t := terms{now: e.Arrived + 1, latest: e.Latest, limits: Limits{
		Labels: e.MaxLabels, LabelName: e.MaxLabelName, LabelValue: e.MaxLabelValue, RefuseInfinities: e.RefuseInfinities,
	}}
	defer r.job.reset()
	var result mapping.WriteResult
	if err := a.find(ctx, &r.job, &r.req, t, &result); err != nil {
		return err
	}
	r.req.Metadata = r.req.Metadata[:0] // what was acknowledged is durable, and may have been replaced since
	a.putBeside(&r.job, &r.req, t, &result)
	if a.Hold.Time == 0 {
		err = a.direct(ctx, &r.job, &r.req, t, &result)
	} else {
		if a.table.held.Load() > a.Hold.MaxMemory/2 {
			if err := a.flushAll(ctx); err != nil {
				return err
			}
		}
		// Finish waits for the flush. Until then an own journal that goes on in the same rows is kept as a whole.
		a.place(&r.job, &r.req, t, 0, &result)
		err = a.applyIndex(ctx, &r.job)
	}
	r.samples += result.Written + result.Histograms
	if n := result.Refused[mapping.ReasonUIDDamaged]; n > 0 && err == nil && !e.UIDsDamaged {
		err = &journal.EntryError{Class: journal.BadUID, Err: fmt.Errorf("%d of its samples are not stored, first of %w", n, firstDamage(&result))}
	}
	return err
}

// decode takes the body of an entry apart.
func (r *replayer) decode(e *journal.Entry) error {
	var err error
	switch e.Form {
	case mapping.FormFlat:
		err = r.req.ParseFlat(e.Body)
	case mapping.FormFlatBlock:
		if r.flat, err = s2.Decode(r.flat[:cap(r.flat)], e.Body); err == nil {
			err = r.req.ParseFlat(r.flat)
		}
	default:
		err = r.a.Hold.Decode(e.Form, e.Body, &r.req)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mapping.ErrNewer):
		return &journal.EntryError{Class: journal.Newer, Err: err}
	default:
		return &journal.EntryError{Class: journal.Damaged, Err: fmt.Errorf("%w: its body cannot be read: %w", mapping.ErrCorrupt, err)}
	}
}

// Finish implements journal.Replayer.
func (r *replayer) Finish(ctx context.Context) error { return r.a.flushAll(ctx) }
