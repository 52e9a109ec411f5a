package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/promtsd/promtsd/store"
)

// Replayer takes the entries of a journal that is taken over.
type Replayer interface {
	// Replay takes one entry, which is its own until it returns. Entries are replayed several at a time: what depends on
	// the order in which they were written is done between turn.Wait and turn.Pass. An *EntryError says that the entry is
	// at fault: what can be taken of it was.
	Replay(ctx context.Context, e *Entry, turn *Turn) error
	// Full says that Finish is to be called before more entries are taken. It may be called while entries are replayed.
	Full() bool
	// Finish makes the samples of all entries so far durable in the data table. Meanwhile none is replayed.
	Finish(ctx context.Context) error
}

// Replayed says what was taken over.
type Replayed struct {
	Entries int
	Bytes   int // of their bodies
	Total   int // entries that the journal seems to have

	Quarantined int // entries that could not be replayed
}

// TakeOver takes the journal of another writer over: its entries go to r, and when their samples are in the data table,
// they and the lease are removed. ok is false if the lease has changed: its holder is alive, or someone else took it
// over; those who may try at the same time must be different holders. An error leaves the journal for the next who
// tries; replaying entries twice changes nothing. The caller thinks that the lease has run out, or that its holder is
// dead: if it lives it acknowledges nothing more. progress is told at the beginning, and from time to time, how far it
// is.
//
// What comes into the journal late, by a put that was long on its way, is not touched: it is an orphan when the lease
// is gone, see ReplayOrphans.
func TakeOver(
	ctx context.Context, c Config, l Lease, holder ID, r Replayer, progress func(Replayed),
) (done Replayed, ok bool, err error) {
	next := l
	next.Holder, next.Address, next.TTL, next.Ended = holder, "", c.LeaseTTL.Milliseconds(), false
	l, ok, err = l.change(ctx, c.Store, c.Tables, next)
	if err != nil || !ok {
		return done, false, err
	}
	a := &takeover{Config: c, replayer: r, writer: l.Writer, holder: holder, replayed: l.Checkpoint, lease: l}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var keeping sync.WaitGroup
	stop := make(chan struct{})
	keeping.Go(func() { a.keepLease(stop, cancel) })
	done, err = a.replay(ctx, l.Truncated, progress)
	if err == nil {
		err = a.checkpoint(ctx)
	}
	close(stop)
	keeping.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		err = cause
	}
	if err == nil {
		err = a.lease.drop(ctx, c.Store, c.Tables)
	}
	if err != nil {
		return done, false, fmt.Errorf("take over the journal of writer %s: %w", l.Writer, err)
	}
	return done, true, nil
}

// takeover is a journal that is being taken over.
type takeover struct {
	Config
	replayer       Replayer
	writer, holder ID
	deletes        []*store.Batch // deletes what has been read since the last checkpoint
	replayed       uint64         // entries below are replayed; the next checkpoint

	mu    sync.Mutex
	lease Lease // guarded by mu
}

// renew keeps the lease, and records a checkpoint in it.
func (a *takeover) renew(ctx context.Context, checkpoint uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.lease
	next.Checkpoint = checkpoint
	next, ok, err := a.lease.change(ctx, a.Store, a.Tables, next)
	switch {
	case err != nil:
		return err
	case !ok:
		return ErrLost
	}
	a.lease = next
	return nil
}

// keepLease renews the lease until stop is closed. If it is lost, lost is called. After a lease TTL without a renewal
// it may be lost, unless no other process can have the store open: then the replay ends, as it would be made twice.
func (a *takeover) keepLease(stop chan struct{}, lost context.CancelCauseFunc) {
	tick := time.NewTicker(max(a.LeaseTTL/4, time.Millisecond))
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), a.LeaseTTL)
		err := a.renew(ctx, 0)
		cancel()
		switch {
		case err == nil:
			last = begin
		case errors.Is(err, ErrLost):
			lost(err)
			return
		case !a.SingleProcess && time.Since(last) >= a.LeaseTTL:
			lost(fmt.Errorf("%w: it could not be renewed: %w", ErrLost, err))
			return
		}
	}
}

// checkpoint makes what has been read durable in the data table, records that in the lease, and deletes it. Nothing is
// stored that was read after somebody else may have begun to delete: without a part of the entries, the rest would
// bring back values that the part replaced. For the same reason the checkpoint is recorded before entries are deleted.
func (a *takeover) checkpoint(ctx context.Context) error {
	if !a.SingleProcess {
		now, err := Lease{Writer: a.writer}.read(ctx, a.Store, a.Tables)
		if err != nil {
			return err
		}
		if now == nil || now.Holder != a.holder {
			return ErrLost
		}
	}
	if err := a.replayer.Finish(ctx); err != nil {
		return err
	}
	if err := a.renew(ctx, a.replayed); err != nil {
		return err
	}
	for _, b := range a.deletes {
		if err := a.Store.Apply(ctx, b); err != nil {
			return fmt.Errorf("delete journal entries: %w", err)
		}
	}
	a.deletes = nil
	return nil
}

// forget notes that an entry is deleted at the next checkpoint.
func (a *takeover) forget(row store.Row) {
	if len(a.deletes) == 0 || a.deletes[len(a.deletes)-1].Len() >= deletedAtOnce {
		a.deletes = append(a.deletes, new(store.Batch))
	}
	deleteRow(a.deletes[len(a.deletes)-1], a.Tables.Journal(), row)
}

func deleteRow(b *store.Batch, table string, row store.Row) {
	for _, c := range row.Cells {
		b.Delete(table, row.Key, c.Family, c.Qualifier, c.Timestamp)
	}
}

// replay hands the entries from a number on to the replayer. Those below the checkpoint are in the data table already:
// the writer died before it had deleted them.
func (a *takeover) replay(ctx context.Context, from uint64, progress func(Replayed)) (done Replayed, err error) {
	rows := rowReplay{Config: &a.Config}
	last, err := rows.last(ctx, a.writer, from)
	if err != nil {
		return done, err
	}
	rows.done.Total = int(last + 1 - min(max(from, a.replayed), last+1))
	progress(rows.sum())
	report := time.Now()
	running := rows.concurrent(ctx, a.replayer)
	defer func() { _ = running.wait() }()
	for row, err := range rows.scan(ctx, a.writer, from) {
		if err != nil {
			return rows.sum(), err
		}
		number := binary.BigEndian.Uint64(row.Key[8:])
		if number >= a.replayed {
			if err := running.begin(row); err != nil {
				return rows.sum(), err
			}
			a.replayed = number + 1
		}
		a.forget(row)
		if time.Since(report) > 2*time.Second {
			report = time.Now()
			progress(rows.sum())
		}
		if a.replayer.Full() {
			if err := running.wait(); err != nil {
				return rows.sum(), err
			}
			if err := a.checkpoint(ctx); err != nil {
				return rows.sum(), err
			}
			running = rows.concurrent(ctx, a.replayer)
		}
	}
	err = running.wait()
	return rows.sum(), err
}
