package journal

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Replayer takes the entries of a journal that is taken over.
type Replayer interface {
	// Replay takes one entry, in the order in which they were written. An *EntryError says that the entry is at fault: what
	// can be taken of it was.
	Replay(ctx context.Context, e *Entry) error
	// Finish makes the samples of all entries durable in the data table.
	Finish(ctx context.Context) error
}

// Adopted says what was taken over.
type Adopted struct {
	Entries int
	Bytes   int // of their bodies

	Quarantined int // entries that could not be replayed
}

// Adopt takes the journal of another writer over: its entries go to r, and when their samples are in the data table, the
// journal and its lease are removed. ok is false if the lease has changed: its holder is alive, or someone else took it
// over; those who may try at the same time must be different holders. An error leaves the journal for the next who tries;
// replaying entries twice changes nothing. The caller knows that the lease has run out, or that its holder is dead.
// progress is told from time to time how far it is.
func Adopt(
	ctx context.Context, c Config, l Lease, holder ID, r Replayer, progress func(Adopted),
) (done Adopted, ok bool, err error) {
	next := l
	next.Holder, next.Address = holder, ""
	l, ok, err = l.change(ctx, c.Store, c.Tables, next)
	if err != nil || !ok {
		return done, false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	kept := make(chan Lease)
	go func() { kept <- hold(c, l, stop, cancel) }()
	done, last, found, err := replay(ctx, c, l, r, progress)
	if err == nil {
		err = r.Finish(ctx)
	}
	close(stop)
	l = <-kept
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		return done, false, cause
	}
	cancel(nil)
	if err != nil {
		return done, false, fmt.Errorf("take over the journal of writer %s: %w", l.Writer, err)
	}
	ctx = context.WithoutCancel(ctx)
	if err := deleteEntries(ctx, c.Store, c.Tables, l.Writer, l.Frontier, last+1, found); err != nil {
		return done, false, err
	}
	return done, true, l.drop(ctx, c.Store, c.Tables)
}

// hold renews a lease until stop is closed, and returns what it is then. If it is lost, lost is called.
func hold(c Config, l Lease, stop chan struct{}, lost context.CancelCauseFunc) Lease {
	tick := time.NewTicker(c.Term / 4)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return l
		case <-tick.C:
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), c.Term)
		next, ok, err := l.change(ctx, c.Store, c.Tables, l)
		cancel()
		switch {
		case err == nil && ok:
			l, last = next, begin
		case err == nil || time.Since(last) >= c.Term:
			lost(fmt.Errorf("take over the journal of writer %s: %w", l.Writer, ErrLost))
			<-stop
			return l
		}
	}
}

// replay hands the entries of a journal to r; last is the number of the last one. Those that are at fault themselves go into
// quarantine.
func replay(
	ctx context.Context, c Config, l Lease, r Replayer, progress func(Adopted),
) (done Adopted, last uint64, found *written, err error) {
	last, found = l.Frontier, new(written)
	scan := store.Scan{Table: c.Tables.Journal(), Ranges: []store.Range{{
		Start: entryRow(l.Writer, l.Frontier), Stop: entryRow(l.Writer, ^uint64(0)),
	}}}
	report := time.Now()
	var value []byte
	for row, err := range c.Store.Scan(ctx, scan) {
		if err != nil {
			return done, last, found, err
		}
		if len(row.Key) != entryRowBytes {
			c.Logger.Warn("a row of the journal is none of an entry's; left alone", "table", scan.Table, "row", hex.EncodeToString(row.Key))
			continue
		}
		last = binary.BigEndian.Uint64(row.Key[8:])
		for _, cell := range row.Cells {
			found.note(last, 1+pieceOf(cell), cell.Timestamp)
		}
		var e Entry
		if value, err = replayEntry(ctx, value, row, &e, r); errors.Is(err, errUnfinished) {
			c.Logger.Warn("left out a journal entry", "writer", l.Writer, "entry", last, "err", err)
			continue
		}
		if bad, ok := errors.AsType[*EntryError](err); ok {
			done.Quarantined++
			if err := quarantine(ctx, c, row, &e, bad); err != nil {
				return done, last, found, err
			}
			continue
		}
		if err != nil {
			return done, last, found, fmt.Errorf("replay journal entry %d: %w", last, err)
		}
		done.Entries++
		done.Bytes += len(e.Body)
		if time.Since(report) > 2*time.Second {
			report = time.Now()
			progress(done)
		}
	}
	return done, last, found, nil
}

// replayEntry hands one entry to r, and fills e in. buf is memory that it may use, and returns for the next.
func replayEntry(ctx context.Context, buf []byte, row store.Row, e *Entry, r Replayer) ([]byte, error) {
	value, err := join(buf, row.Cells)
	if err != nil {
		return buf, err
	}
	if len(row.Cells) > 1 {
		buf = value
	}
	if *e, err = ParseEntry(value); err != nil {
		return buf, err
	}
	return buf, r.Replay(ctx, e)
}

// RemoveOrphans removes the entries of writers that have no lease. Such a writer stopped for so long that its journal was
// taken over, and what it had under way reached the store only then; none of it was acknowledged.
func RemoveOrphans(ctx context.Context, st store.Store, tables catalog.Tables) error {
	var writers []ID
	for start := []byte{0}; start != nil; {
		jump := store.Scan{Table: tables.Journal(), Limit: 1, Ranges: []store.Range{{Start: start}}}
		start = nil
		for row, err := range st.Scan(ctx, jump) {
			if err != nil {
				return fmt.Errorf("look for entries without a lease: %w", err)
			}
			id := ID(binary.BigEndian.Uint64(row.Key))
			writers = append(writers, id)
			if id < ^ID(0) {
				start = entryRow(id+1, 0)
			}
		}
	}
	// A lease is there before the first entry: so leases are read after the entries.
	leases, err := Leases(ctx, st, tables)
	if err != nil {
		return err
	}
	for _, id := range writers {
		if slices.ContainsFunc(leases, func(l Lease) bool { return l.Writer == id }) {
			continue
		}
		if err := removeAll(ctx, st, tables, id); err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes every entry of a writer.
func removeAll(ctx context.Context, st store.Store, tables catalog.Tables, id ID) error {
	var b store.Batch
	scan := store.Scan{Table: tables.Journal(), Ranges: []store.Range{{
		Start: entryRow(id, 0), Stop: entryRow(id, ^uint64(0)),
	}}}
	for row, err := range st.Scan(ctx, scan) {
		if err != nil {
			return fmt.Errorf("look for entries without a lease: %w", err)
		}
		for _, cell := range row.Cells {
			b.Delete(scan.Table, row.Key, cell.Family, cell.Qualifier, cell.Timestamp)
		}
	}
	if err := st.Apply(ctx, &b); err != nil {
		return fmt.Errorf("delete entries without a lease: %w", err)
	}
	return nil
}
