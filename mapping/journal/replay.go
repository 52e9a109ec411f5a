package journal

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/promtsd/promtsd/store"
)

// What is replayed at a time. Most of a replay is looking for UIDs and writing index rows, which on HBase is waiting
// for answers.
const (
	replayedAtOnce = 8       // entries
	replayedBytes  = 8 << 20 // bytes of their values; an entry that has more is replayed alone
)

// Turn is when an entry may be placed: after those that were written before it. The zero value is that of an entry by
// itself.
type Turn struct {
	before <-chan struct{} // closed by the entry before
	passed chan struct{}
	done   bool
}

// Wait waits until all entries before have passed on their turns, or ctx ends.
func (t *Turn) Wait(ctx context.Context) error {
	if t.before == nil {
		return ctx.Err()
	}
	select {
	case <-t.before:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pass lets the next entry have its turn. It may be called after Wait only, and by one goroutine; the second time it
// does nothing.
func (t *Turn) Pass() {
	if t.passed != nil && !t.done {
		t.done = true
		close(t.passed)
	}
}

// rowReplay replays rows of the journal's table.
type rowReplay struct {
	*Config
	mu   sync.Mutex
	done Replayed // guarded by mu
}

// sum says what was replayed so far.
func (r *rowReplay) sum() Replayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// concurrentReplay replays several rows at a time.
type concurrentReplay struct {
	rows  *rowReplay
	to    Replayer
	ctx   context.Context // ends with the first error
	group *errgroup.Group
	room  *semaphore.Weighted // bytes
	last  <-chan struct{}     // closed when all rows so far are placed
}

func (r *rowReplay) concurrent(ctx context.Context, to Replayer) *concurrentReplay {
	s := &concurrentReplay{rows: r, to: to, room: semaphore.NewWeighted(replayedBytes)}
	s.group, s.ctx = errgroup.WithContext(ctx)
	s.group.SetLimit(replayedAtOnce)
	return s
}

// begin begins to replay a row, which is only valid until it returns, after those that were given before. An error is
// of one of these: no row after it is placed.
func (s *concurrentReplay) begin(row store.Row) error {
	row = row.Clone()
	size := int64(0)
	for _, c := range row.Cells {
		size += int64(len(c.Value))
	}
	size = min(size, replayedBytes)
	if err := s.room.Acquire(s.ctx, size); err != nil {
		return cmp.Or(s.wait(), err)
	}
	turn := &Turn{before: s.last, passed: make(chan struct{})}
	s.last = turn.passed
	s.group.Go(func() error {
		defer s.room.Release(size)
		err := s.rows.replay(s.ctx, row, s.to, turn)
		if err == nil {
			err = turn.Wait(s.ctx)
		}
		if err == nil {
			turn.Pass()
		}
		return err
	})
	return nil
}

// wait waits until all rows are replayed.
func (s *concurrentReplay) wait() error { return s.group.Wait() }

// replay hands an entry to the replayer. One that is at fault itself goes into quarantine.
func (r *rowReplay) replay(ctx context.Context, row store.Row, to Replayer, turn *Turn) error {
	var e Entry
	err := replayEntry(ctx, row, &e, to, turn)
	if errors.Is(err, errUnfinished) {
		r.Logger.Warn("left out a journal entry", "row", formatRow(row.Key), "err", err)
		return nil
	}
	bad, atFault := errors.AsType[*EntryError](err)
	switch {
	case atFault:
		err = quarantine(ctx, *r.Config, row, &e, bad)
	case err != nil:
		err = fmt.Errorf("replay journal %s: %w", formatRow(row.Key), err)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if atFault {
		r.done.Quarantined++
	} else {
		r.done.Entries++
		r.done.Bytes += len(e.Body)
	}
	return nil
}

// replayEntry fills e in, and hands it to the replayer.
func replayEntry(ctx context.Context, row store.Row, e *Entry, to Replayer, turn *Turn) error {
	value, err := join(nil, row.Cells)
	if err != nil {
		return err
	}
	if *e, err = ParseEntry(value); err != nil {
		return err
	}
	return to.Replay(ctx, e, turn)
}

// scan yields the entries of a writer from a number on.
func (r *rowReplay) scan(ctx context.Context, writer ID, from uint64) iter.Seq2[store.Row, error] {
	scan := store.Scan{Table: r.Tables.Journal(), Ranges: []store.Range{{
		Start: entryRow(writer, from), Stop: entryRow(writer, ^uint64(0)),
	}}}
	return func(yield func(store.Row, error) bool) {
		for row, err := range r.Store.Scan(ctx, scan) {
			if err == nil && len(row.Key) != entryRowBytes {
				r.Logger.Warn("a row of the journal is none of an entry's; left alone", "table", scan.Table,
					"row", formatRow(row.Key))
				continue
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// last is the number of the last entry of a writer; without one from a number on, the number before it. It takes some
// looks, each at one entry.
func (r *rowReplay) last(ctx context.Context, writer ID, from uint64) (uint64, error) {
	below, beyond := max(from, 1)-1, uint64(math.MaxUint64) // there are entries up to below, and none from beyond on
	for step := uint64(1); below+1 < beyond; step *= 2 {
		at := below + step
		if beyond < math.MaxUint64 {
			at = below + (beyond-below)/2
		}
		jump := store.Scan{Table: r.Tables.Journal(), Limit: 1, Ranges: []store.Range{{
			Start: entryRow(writer, at), Stop: entryRow(writer, math.MaxUint64),
		}}}
		found := false
		for row, err := range r.Store.Scan(ctx, jump) {
			if err != nil {
				return 0, err
			}
			if found = len(row.Key) >= entryRowBytes; found {
				below = binary.BigEndian.Uint64(row.Key[8:])
			}
		}
		if !found {
			beyond = at
		}
	}
	return below, nil
}
