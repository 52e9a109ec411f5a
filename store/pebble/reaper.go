package pebble

import (
	"context"
	"fmt"
	"sync/atomic"

	lsm "github.com/cockroachdb/pebble/v2"
)

// The tree of the log tables has no compactions, which would only move its cells to and fro before they are deleted.
// Its space comes back by excising: ranges of keys in which all cells are deleted are cut out of the tree's list of
// files, which reads and writes no cell. A file goes when nothing of it is left.
//
// Since cells are deleted about in the order in which they were put, files go soon. Where a few cells stay for long,
// they keep their files; the tree is compacted after all when it holds far more than its cells need, so compactions
// write less in total than they free.
const (
	gapParts = 16 // a gap is cut out from this part of a memtable on
	slack    = 8  // memtables full that the tree may hold beyond twice its cells
)

// reaper gives the space of deleted log cells back. It runs as a goroutine of the store's when as many bytes of cells
// were deleted as a memtable holds.
type reaper struct {
	tree     *tree
	live     liveSet
	memTable int64
	ctx      context.Context // ends when the store closes
	run      func(func() error)

	running atomic.Bool
	freed   atomic.Int64 // live.freed
	reaped  atomic.Int64 // live.freed when the reaper began to run last
}

// newReaper reads which cells the tree holds.
func newReaper(ctx context.Context, t *tree, memTable uint64, run func(func() error)) (*reaper, error) {
	r := &reaper{tree: t, memTable: int64(memTable), ctx: ctx, run: run}
	it, err := t.db.NewIter(nil)
	if err != nil {
		return nil, classify(err)
	}
	err = r.load(it)
	if closeErr := it.Close(); err == nil {
		err = classify(closeErr)
	}
	if err != nil {
		return nil, fmt.Errorf("read log tables: %w", err)
	}
	// What was deleted before is not known, but most likely it lay before the cells that are left.
	all := dead{bytes: r.memTable, from: appendPrefix(nil, 0, nil)}
	if len(r.live.chunks) > 0 {
		r.live.chunks[0][0].dead = all
	} else if r.tree.db.Metrics().DiskSpaceUsage() >= memTable {
		r.live.tail = all
		r.start()
	}
	return r, nil
}

// clear gives all space back if no cell is left. Nothing else may use the tree.
func (r *reaper) clear() error {
	if len(r.live.chunks) > 0 || r.tree.db.Metrics().DiskSpaceUsage() < uint64(r.memTable) {
		return nil
	}
	if err := r.tree.db.Flush(); err != nil {
		return fmt.Errorf("flush log tables: %w", classify(err))
	}
	all := lsm.KeyRange{Start: appendPrefix(nil, 0, nil), End: appendPrefix(nil, maxTable+1, nil)}
	if err := r.tree.db.Excise(context.Background(), all); err != nil {
		return fmt.Errorf("cut deleted cells out of log tables: %w", classify(err))
	}
	r.live.tail = dead{}
	return nil
}

func (r *reaper) load(it *lsm.Iterator) error {
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return classify(err)
		}
		h, err := parseHeader(value)
		if err != nil {
			return err
		}
		r.live.put(it.Key(), h.timestamp, int64(len(it.Key())+len(value)))
	}
	return classify(it.Error())
}

// note takes over what a batch does that is about to be applied. The caller holds the tree's writeMu.
func (r *reaper) note(b *lsm.Batch) error {
	err := r.live.note(b)
	r.freed.Store(r.live.freed)
	return err
}

// wake starts a run if there is enough to do and none is under way. The caller is a write that Close waits for.
func (r *reaper) wake() {
	freed := r.freed.Load()
	if freed-r.reaped.Load() < r.memTable || !r.running.CompareAndSwap(false, true) {
		return
	}
	r.reaped.Store(freed)
	r.start()
}

// start starts a run.
func (r *reaper) start() {
	r.run(func() error {
		defer r.running.Store(false)
		return r.reap()
	})
}

// reap cuts out what is worth it.
func (r *reaper) reap() error {
	r.tree.writeMu.RLock()
	gaps, before := r.live.gaps(r.memTable/gapParts), r.live.freed
	r.tree.writeMu.RUnlock()
	if len(gaps) > 0 {
		// A gap that a memtable reaches into would make writes wait for its flush.
		flushed, err := r.tree.db.AsyncFlush()
		if err != nil {
			return fmt.Errorf("flush log tables: %w", classify(err))
		}
		select {
		case <-flushed:
		case <-r.ctx.Done():
			return nil
		}
	}
	for _, g := range gaps {
		if err := r.excise(g); err != nil {
			return fmt.Errorf("cut deleted cells out of log tables: %w", classify(err))
		}
	}
	r.tree.writeMu.RLock()
	live := r.live.bytes + r.live.freed - before // with what was deleted meanwhile, which the next run cuts out
	r.tree.writeMu.RUnlock()
	if m := r.tree.db.Metrics(); int64(m.Table.Local.LiveSize) <= 2*live+slack*r.memTable {
		return nil
	}
	err := r.tree.db.Compact(r.ctx, appendPrefix(nil, 0, nil), appendPrefix(nil, maxTable+1, nil), false)
	if err != nil && r.ctx.Err() == nil {
		return fmt.Errorf("compact log tables: %w", classify(err))
	}
	return nil
}

// excise cuts a gap out, unless a cell was put into it meanwhile. Writes wait, so that none comes between the look and
// the cut; the cut is a record of the tree's files, synced.
func (r *reaper) excise(g gap) error {
	r.tree.writeMu.Lock()
	defer r.tree.writeMu.Unlock()
	if r.ctx.Err() != nil || !r.live.empty(g) {
		return nil
	}
	if err := r.tree.db.Excise(r.ctx, lsm.KeyRange{Start: g.start, End: g.end}); err != nil {
		return err
	}
	r.live.cut(g)
	return nil
}
