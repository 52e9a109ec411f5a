package recovery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping/journal"
)

// takeOverAll takes over the journals of all writers that were there before this one and are dead, and waits until it
// is clear which are.
func (r *Recovery) takeOverAll(ctx context.Context, watch *journal.Watch, id journal.ID) error {
	alone, ttl, logger := r.config.Journal.SingleProcess, r.config.Journal.LeaseTTL, r.config.Journal.Logger
	before, err := r.leases(ctx)
	if err != nil {
		return err
	}
	revisions := make(map[journal.ID]uint64) // of the writers that may be dead
	for _, l := range before {
		if l.Writer != id {
			revisions[l.Writer] = l.Revision
		}
	}
	if len(revisions) > 0 && !alone {
		logger.Info("waiting to see which of the other writers are alive", "writers", len(revisions))
	}
	for len(revisions) > 0 {
		leases, err := r.leases(ctx)
		if err != nil {
			return err
		}
		unclear := make(map[journal.ID]uint64)
		for _, l := range leases {
			if revision, ok := revisions[l.Writer]; ok && (alone || revision == l.Revision) {
				unclear[l.Writer] = revision
			}
		}
		if revisions = unclear; len(revisions) == 0 {
			break
		}
		dead := watch.Expired(leases, time.Now(), ttl)
		if alone {
			dead = leases
		}
		tried := false
		for _, l := range dead {
			if l.Writer == id {
				continue
			}
			tried = true
			if err := r.TakeOver(ctx, l, id); err != nil {
				return err
			}
		}
		if alone {
			break
		}
		if tried {
			continue // it may have been the last
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(ttl / 10):
		}
	}
	return r.replayOrphans(ctx)
}

// orphansAfter is how many lease TTLs pass between two looks for entries without a lease. After a journal was taken
// over it is one: what its writer had in flight comes in then.
const orphansAfter = 20

// watch takes over the journals of writers that die, and replays entries without a lease.
func (r *Recovery) watch(ctx context.Context, watch *journal.Watch, id journal.ID) {
	ttl, logger := r.config.Journal.LeaseTTL, r.config.Journal.Logger
	tick := time.NewTicker(ttl / 4)
	defer tick.Stop()
	look := time.Now().Add(ttl * orphansAfter)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		leases, err := r.leases(ctx)
		if err != nil {
			logger.Warn("cannot see which writers are alive; retrying", "err", err)
			*watch = journal.Watch{} // they may not have been able to renew their leases
			continue
		}
		for _, l := range watch.Expired(leases, time.Now(), ttl) {
			if w := r.journal.Load(); w != nil && w.ID() == l.Writer {
				continue
			}
			if err := r.TakeOver(ctx, l, id); err != nil && ctx.Err() == nil {
				logger.Warn("journal not taken over; retrying", "writer", l.Writer, "err", err)
			}
			look = time.Now().Add(ttl)
		}
		if time.Now().After(look) {
			look = time.Now().Add(ttl * orphansAfter)
			if err := r.replayOrphans(ctx); err != nil && ctx.Err() == nil {
				logger.Warn("entries without a lease not replayed; retrying", "err", err)
			}
		}
	}
}

// replayOrphans replays entries without a lease.
func (r *Recovery) replayOrphans(ctx context.Context) error {
	var samples atomic.Int64
	done, err := journal.ReplayOrphans(ctx, r.journalConfig(1), func() journal.Replayer {
		return r.config.NewSingleReplayer(&samples)
	})
	if done.Entries+done.Quarantined > 0 {
		r.config.Journal.Logger.Warn("replayed journal entries without a lease", "entries", done.Entries, "bytes", done.Bytes,
			"samples", samples.Load(), "quarantined", done.Quarantined)
	}
	return err
}

// TakeOver takes over the journal of a writer whose lease has run out. holder is the name of this process.
func (r *Recovery) TakeOver(ctx context.Context, l journal.Lease, holder journal.ID) error {
	logger := r.config.Journal.Logger
	begin := time.Now()
	var samples atomic.Int64
	replayer, end := r.config.NewReplayer(&samples)
	defer end()
	defer r.replaying.Store(nil)
	done, ok, err := journal.TakeOver(ctx, r.journalConfig(1), l, holder, replayer, func(done journal.Replayed) {
		r.replaying.Store(&replaying{l.Writer, done})
		elapsed := time.Since(begin)
		attrs := []any{"writer", l.Writer, "entries", done.Entries, "of", done.Total, "bytes", done.Bytes,
			"samples", samples.Load(), "elapsed", elapsed.Round(time.Millisecond)}
		if done.Entries > 0 {
			left := time.Duration(float64(elapsed) * float64(done.Total-done.Entries) / float64(done.Entries))
			attrs = append(attrs, "left", left.Round(time.Second))
		}
		logger.Info("replaying a journal", attrs...)
	})
	if errors.Is(err, journal.ErrLost) {
		logger.Warn("another promtsd goes on with a journal that was being taken over here", "writer", l.Writer, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	if ok {
		logger.Info("took a journal over", "writer", l.Writer, "entries", done.Entries, "bytes", done.Bytes,
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
func (r *Recovery) Replaying() string {
	p := r.replaying.Load()
	if p == nil {
		return ""
	}
	return fmt.Sprintf("replaying the journal of writer %s, %d of %d entries", p.writer, p.done.Entries, p.done.Total)
}

// EntriesLeft is how many entries are still to be replayed.
func (r *Recovery) EntriesLeft() int {
	p := r.replaying.Load()
	if p == nil {
		return 0
	}
	return max(0, p.done.Total-p.done.Entries-p.done.Quarantined)
}
