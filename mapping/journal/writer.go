package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Config is what a Writer needs.
type Config struct {
	Store         store.Store
	Tables        catalog.Tables
	Address       string        // where this process answers other promtsd; empty: nowhere
	LeaseTTL      time.Duration // for how long a lease is good without a change
	SingleProcess bool          // no other process can have the store open: leases cannot be lost
	First         uint64        // the number of the first entry, 1 or more
	Logger        *slog.Logger

	// Future is how far ahead of its request's arrival a sample of an entry may be that does not say so itself because it
	// cannot be read; 0: any time.
	Future time.Duration
}

// Writer writes a journal. It is safe for concurrent use.
type Writer struct {
	Config
	id      ID
	buffers sync.Pool // *memory
	cells   written   // entries that are not deleted yet

	renewed  atomic.Pointer[renewal] // the last one
	lost     chan struct{}           // closed by lose
	loseOnce sync.Once
	reads    leaseReads

	mu       sync.Mutex
	next     uint64              // the number of the next entry
	inFlight map[uint64]struct{} // entries for which place has not returned yet
	backlog  []backlogEntry      // of the entries that are not deleted yet; the last one's number is next-1

	lease   Lease  // of Run and Close, which are called one after the other
	deleted uint64 // entries below are gone
}

// renewal is a change of the lease that keeps it.
type renewal struct {
	began time.Time // the others count from later on
	since error     // why the next one failed
}

// writeBuffers is that of one Write, used again by the next.
type writeBuffers struct {
	batch store.Batch
	value []byte
}

// Open begins a new journal, and makes the table for it where there is none.
func Open(ctx context.Context, c Config) (*Writer, error) {
	w := &Writer{Config: c, next: c.First, deleted: c.First, inFlight: make(map[uint64]struct{}),
		lost: make(chan struct{})}
	looking, stop := context.WithCancel(context.Background())
	w.reads.read, w.reads.stop = func() error { return w.readLease(looking) }, stop
	for w.id == 0 {
		w.id = ID(rand.Uint64())
	}
	w.buffers.New = func() any { return new(writeBuffers) }
	if err := c.Store.CreateTable(ctx, c.Tables.JournalTable()); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := w.renew(ctx, c.First); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return w, nil
}

// ID is the writer's.
func (w *Writer) ID() ID { return w.id }

// renew changes the lease.
func (w *Writer) renew(ctx context.Context, checkpoint uint64) error {
	begin := time.Now()
	next, ok, err := w.lease.change(ctx, w.Store, w.Tables, Lease{
		Writer: w.id, Address: w.Address, Holder: w.id,
		Checkpoint: checkpoint, Truncated: w.deleted, TTL: w.LeaseTTL.Milliseconds(),
	})
	switch {
	case err != nil:
		if last := w.renewed.Load(); last != nil {
			w.renewed.Store(&renewal{last.began, err})
		}
		return fmt.Errorf("renew lease of writer %s: %w", w.id, err)
	case !ok:
		w.lose()
		return fmt.Errorf("renew lease of writer %s: %w: another promtsd has taken its journal over", w.id, ErrLost)
	}
	w.lease = next
	w.renewed.Store(&renewal{began: begin})
	return nil
}

// lose notes that the journal is not this writer's any more.
func (w *Writer) lose() { w.loseOnce.Do(func() { close(w.lost) }) }

// Check says whether the lease seems to be good, by what is known here. It refuses early, and cheaply, what Confirm
// would refuse.
func (w *Writer) Check() error {
	select {
	case <-w.lost:
		return ErrLost
	default:
	}
	if w.SingleProcess {
		return nil
	}
	return w.Ready()
}

// Ready says whether the lease was renewed in time, and why not.
func (w *Writer) Ready() error {
	select {
	case <-w.lost:
		return ErrLost
	default:
	}
	last := w.renewed.Load()
	age := time.Since(last.began)
	if age < w.LeaseTTL {
		return nil
	}
	err := fmt.Errorf("%w: the lease of this writer was last renewed %v ago, and is good for %v",
		ErrLost, age.Round(time.Millisecond), w.LeaseTTL)
	if last.since != nil {
		err = fmt.Errorf("%w: %w", err, last.since)
	}
	return err
}

// Write makes an entry durable, then calls place with its number, in which the samples get where they are flushed from.
// Until place has returned the entry counts as not flushed. An error means that the entry may or may not be there.
// store.ErrTooLarge says that it never can be.
func (w *Writer) Write(ctx context.Context, e *Entry, place func(number uint64)) error {
	if err := w.Check(); err != nil {
		return err
	}
	m := w.buffers.Get().(*writeBuffers)
	defer w.putBuffers(m)
	m.value = AppendEntry(m.value[:0], e)
	if len(m.value) > maxBytes {
		return fmt.Errorf("%w: the journal takes requests of up to %d bytes, this one has %d", store.ErrTooLarge, maxBytes,
			len(m.value))
	}

	w.mu.Lock()
	number := w.next
	w.next++
	w.inFlight[number] = struct{}{}
	w.backlog = append(w.backlog, backlogEntry{e.Arrived, len(m.value)})
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.inFlight, number)
		w.mu.Unlock()
	}()

	w.cells.note(number, pieces(m.value))
	m.batch.Reset()
	putPieces(&m.batch, w.Tables.Journal(), entryRow(w.id, number), e.Arrived, m.value)
	if err := w.Store.Apply(ctx, &m.batch); err != nil {
		return fmt.Errorf("write journal entry: %w", err)
	}
	place(number)
	return nil
}

// maxPooledBytes is the size above which the memory of a Write is not kept.
const maxPooledBytes = 2 << 20

func (w *Writer) putBuffers(m *writeBuffers) {
	if cap(m.value) <= maxPooledBytes {
		w.buffers.Put(m)
	}
}

const entryRowBytes = 16

func entryRow(id ID, number uint64) []byte {
	row := make([]byte, 0, entryRowBytes)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(row, uint64(id)), number)
}

// OldestInFlight is the number of the oldest entry for which place has not returned. To compute the checkpoint, call it
// before looking at the samples that wait for a flush: the reverse can miss an entry that is placed between the two.
func (w *Writer) OldestInFlight() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := w.next
	for number := range w.inFlight {
		oldest = min(oldest, number)
	}
	return oldest
}

// Run renews the lease, records the checkpoint in it, and deletes the entries below, until ctx ends or the lease is
// lost; the latter is ErrLost. checkpoint returns the number below which all samples are in the data table.
func (w *Writer) Run(ctx context.Context, checkpoint func() uint64) error {
	tick := time.NewTicker(w.LeaseTTL / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.lost:
			return ErrLost
		case <-tick.C:
		}
		number := checkpoint()
		err := w.renew(ctx, number)
		if err == nil {
			// The next renewal must not wait for a part of the store that is slow.
			sweeping, cancel := context.WithTimeout(ctx, w.LeaseTTL/4)
			err = w.truncate(sweeping, number)
			cancel()
		}
		if errors.Is(err, ErrLost) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			w.Logger.Warn("journal not kept up; trying again", "writer", w.id, "err", err)
		}
	}
}

// truncate deletes the entries below the checkpoint, which must be recorded by then: a replay that met a part of the
// deleted entries would bring back values that later ones replaced.
func (w *Writer) truncate(ctx context.Context, checkpoint uint64) error {
	for w.deleted < checkpoint {
		next := min(w.deleted+deletedAtOnce, checkpoint)
		if err := deleteEntries(ctx, w.Store, w.Tables, w.id, w.deleted, next, &w.cells); err != nil {
			return err
		}
		w.mu.Lock()
		w.backlog = w.backlog[next-w.deleted:]
		w.mu.Unlock()
		w.deleted = next
	}
	return nil
}

// backlogEntry is what Backlog counts of an entry.
type backlogEntry struct {
	arrived int64 // in milliseconds since 1970
	bytes   int
}

// Backlog says how many entries are written and not deleted, how many bytes they have, and when the oldest arrived, in
// milliseconds since 1970; 0: there is none.
func (w *Writer) Backlog() (entries, bytes int, oldest int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.backlog {
		bytes += e.bytes
	}
	if len(w.backlog) > 0 {
		oldest = w.backlog[0].arrived
	}
	return len(w.backlog), bytes, oldest
}

// Next is the number of the next entry.
func (w *Writer) Next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

// Close gives the lease up. All samples must be in the data table, and Run must have returned.
func (w *Writer) Close(ctx context.Context) error {
	w.reads.stop()
	w.reads.running.Wait()
	select {
	case <-w.lost:
		return nil
	default:
	}
	if err := w.renew(ctx, w.Next()); err != nil {
		return err
	}
	if err := w.truncate(ctx, w.Next()); err != nil {
		return err
	}
	if err := w.lease.drop(ctx, w.Store, w.Tables); err != nil {
		return err
	}
	w.lose()
	return nil
}

// HandOver leaves the journal to whoever takes it over: samples of entries from the checkpoint on are not in the data
// table. Run must have returned, and nothing is acknowledged any more.
func (w *Writer) HandOver(ctx context.Context, checkpoint uint64) error {
	w.reads.running.Wait()
	select {
	case <-w.lost:
		return nil
	default:
	}
	defer w.lose()
	next := w.lease
	next.Checkpoint, next.Truncated, next.Ended = checkpoint, w.deleted, true
	_, ok, err := w.lease.change(ctx, w.Store, w.Tables, next)
	if err == nil && !ok {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("leave the journal of writer %s to others: %w", w.id, err)
	}
	return nil
}

const (
	// deletedAtOnce is how many entries one batch deletes.
	deletedAtOnce = 1000
	// everAfter is the timestamp that entries are deleted with, by their numbers: whatever clock has stamped them. They
	// are never written again.
	everAfter = math.MaxInt64 - 1
)

// deleteEntries deletes the entries of a writer from one number up to another.
func deleteEntries(ctx context.Context, st store.Store, tables catalog.Tables, id ID, from, to uint64,
	w *written) error {
	var b store.Batch
	for from < to {
		b.Reset()
		begin := from
		for ; from < to && b.Len() < deletedAtOnce; from++ {
			for piece := range w.pieces(from) {
				b.Delete(tables.Journal(), entryRow(id, from), catalog.FamilySystem, pieceQualifier(piece), everAfter)
			}
		}
		if err := st.Apply(ctx, &b); err != nil {
			return fmt.Errorf("delete journal entries: %w", err)
		}
		for ; begin < from; begin++ {
			w.long.Delete(begin)
		}
	}
	return nil
}
