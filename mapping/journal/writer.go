package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Config is what a Writer needs.
type Config struct {
	Store   store.Store
	Tables  catalog.Tables
	Address string        // where this process answers other promtsd; empty: nowhere
	Term    time.Duration // for how long a lease is good without a change
	First   uint64        // the number of the first entry, 1 or more
	Logger  *slog.Logger

	// Future is how far ahead of its request's arrival a sample of an entry may be that does not say so itself because it
	// cannot be read; 0: any time.
	Future time.Duration
}

// Writer writes a journal. It is safe for concurrent use.
type Writer struct {
	Config
	id     ID
	memory sync.Pool // *memory
	own    written   // entries that are not deleted yet

	renewed atomic.Pointer[time.Time] // the lease is good for a term from then on; nil: it is lost

	mu       sync.Mutex
	next     uint64              // the number of the next entry
	underway map[uint64]struct{} // entries whose samples have not found their place yet

	lease   Lease  // of Keep and Close, which are called one after the other
	deleted uint64 // entries below are gone
}

// memory is that of one Write, used again by the next.
type memory struct {
	batch store.Batch
	value []byte
}

// Open begins a new journal, and makes the table for it where there is none.
func Open(ctx context.Context, c Config) (*Writer, error) {
	w := &Writer{Config: c, next: c.First, deleted: c.First, underway: make(map[uint64]struct{})}
	for w.id == 0 {
		w.id = ID(rand.Uint64())
	}
	w.memory.New = func() any { return new(memory) }
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
func (w *Writer) renew(ctx context.Context, frontier uint64) error {
	begin := time.Now() // the others count from later on
	next, ok, err := w.lease.change(ctx, w.Store, w.Tables, Lease{
		Writer: w.id, Address: w.Address, Holder: w.id, Frontier: max(frontier, w.lease.Frontier),
	})
	switch {
	case err != nil:
		return fmt.Errorf("renew lease of writer %s: %w", w.id, err)
	case !ok:
		w.renewed.Store(nil)
		return fmt.Errorf("renew lease of writer %s: %w: another promtsd has taken its journal over", w.id, ErrLost)
	}
	w.lease = next
	w.renewed.Store(&begin)
	return nil
}

// Check says whether the lease is good. It must be asked between making an entry durable and acknowledging it: then the
// entry was there before anyone could have taken the journal over.
func (w *Writer) Check() error {
	renewed := w.renewed.Load()
	if renewed == nil {
		return ErrLost
	}
	if age := time.Since(*renewed); age >= w.Term {
		return fmt.Errorf("%w: it was last renewed %v ago, and is good for %v", ErrLost, age.Round(time.Millisecond), w.Term)
	}
	return nil
}

// Write makes an entry durable, then calls place with its number, in which the samples get where they are flushed from.
// Until place has returned the entry counts as not flushed. An error means that the entry may or may not be there.
// store.ErrTooLarge says that it never can be.
func (w *Writer) Write(ctx context.Context, e *Entry, place func(number uint64)) error {
	if err := w.Check(); err != nil {
		return err
	}
	m := w.memory.Get().(*memory)
	defer w.keepMemory(m)
	m.value = AppendEntry(m.value[:0], e)
	if len(m.value) > maxBytes {
		return fmt.Errorf("%w: the journal takes requests of up to %d bytes, this one has %d", store.ErrTooLarge, maxBytes, len(m.value))
	}

	w.mu.Lock()
	number := w.next
	w.next++
	w.underway[number] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.underway, number)
		w.mu.Unlock()
	}()

	w.own.note(number, pieces(m.value), e.Arrived)
	m.batch.Reset()
	putPieces(&m.batch, w.Tables.Journal(), entryRow(w.id, number), e.Arrived, m.value)
	if err := w.Store.Apply(ctx, &m.batch); err != nil {
		return fmt.Errorf("write journal entry: %w", err)
	}
	place(number)
	return nil
}

// maxKept is the size above which the memory of a Write is not kept.
const maxKept = 2 << 20

func (w *Writer) keepMemory(m *memory) {
	if cap(m.value) <= maxKept {
		w.memory.Put(m)
	}
}

const entryRowBytes = 16

func entryRow(id ID, number uint64) []byte {
	row := make([]byte, 0, entryRowBytes)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(row, uint64(id)), number)
}

// Oldest is the number of the oldest entry whose samples may not have found their place yet. Whoever computes the
// frontier asks here first, and then where the samples are: what is under way now may be there a moment later.
func (w *Writer) Oldest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := w.next
	for number := range w.underway {
		oldest = min(oldest, number)
	}
	return oldest
}

// Keep renews the lease, records the frontier in it, and deletes the entries below, until ctx ends or the lease is lost;
// the latter is ErrLost. frontier is asked for the number below which all samples are in the data table.
func (w *Writer) Keep(ctx context.Context, frontier func() uint64) error {
	tick := time.NewTicker(w.Term / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		number := frontier()
		err := w.renew(ctx, number)
		if err == nil {
			// The next renewal must not wait for a part of the store that is slow.
			sweeping, cancel := context.WithTimeout(ctx, w.Term/4)
			err = w.sweep(sweeping, number)
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

// sweep deletes the entries below the frontier, which must be recorded by then: a replay that met a part of the deleted
// entries would bring back values that later ones replaced.
func (w *Writer) sweep(ctx context.Context, frontier uint64) error {
	for w.deleted < frontier {
		next := min(w.deleted+deletedAtOnce, frontier)
		if err := deleteEntries(ctx, w.Store, w.Tables, w.id, w.deleted, next, &w.own); err != nil {
			return err
		}
		w.deleted = next
	}
	return nil
}

// Next is the number of the next entry.
func (w *Writer) Next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

// Close gives the lease up. All samples must be in the data table, and Keep must have returned.
func (w *Writer) Close(ctx context.Context) error {
	if w.renewed.Load() == nil {
		return nil // the journal is another's
	}
	if err := w.renew(ctx, w.Next()); err != nil {
		return err
	}
	if err := w.sweep(ctx, w.Next()); err != nil {
		return err
	}
	w.renewed.Store(nil)
	return w.lease.drop(ctx, w.Store, w.Tables)
}

// deletedAtOnce is how many entries one batch deletes.
const deletedAtOnce = 1000

// deleteEntries deletes the entries of a writer from one number up to another.
func deleteEntries(ctx context.Context, st store.Store, tables catalog.Tables, id ID, from, to uint64, w *written) error {
	var b store.Batch
	for from < to {
		b.Reset()
		begin, timestamp := from, max(time.Now().UnixMilli(), w.latest.Load())
		for ; from < to && b.Len() < deletedAtOnce; from++ {
			for piece := range w.pieces(from) {
				b.Delete(tables.Journal(), entryRow(id, from), catalog.FamilyOwn, pieceQualifier(piece), timestamp)
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
