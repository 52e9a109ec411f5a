package query

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// block is a part of a query's answer that is read at once: the plan of it, the work that the plan is divided into, and
// the result. It is used again and again, one goroutine after the other.
type block struct {
	plan
	buffered
	tasks   []task
	readers []*reader // of which each reads tasks in a goroutine of its own
	result

	reservation // the memory of all but the samples of the store, which the readers have
}

// errFull ends the reading of a block that has more samples than blocks should have.
var errFull = errors.New("the block is full")

// read reads the rows of the plan. full says that it stopped at the querier's blockPoints: fewer rows should be tried.
func (b *block) read(ctx context.Context, q *Querier, s *set) (full bool, err error) {
	b.chooseSteps(q.Settings.Schema, q.Costs, q.forced, s.population)
	b.tasks = divide(b.tasks, &b.plan, b.buffered.rows, q.Concurrency)
	readers := b.reset(q, s)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, points atomic.Int64
	limit := int64(math.MaxInt64)
	if b.divisible() {
		limit = int64(q.blockPoints)
	}
	work := func(r *reader) {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(b.tasks) {
				return
			}
			if err := r.read(ctx, &b.tasks[i], &points, limit); err != nil {
				cancel(err)
				return
			}
		}
	}
	var wg sync.WaitGroup
	for i, r := range readers {
		if i > 0 {
			wg.Go(func() { work(r) })
		}
	}
	if len(readers) > 0 {
		work(readers[0])
	}
	wg.Wait()
	b.touched = Touched{Blocks: 1}
	b.merged.Reset()
	for _, r := range readers {
		b.touched.add(r.touched)
	}
	if err := context.Cause(ctx); err != nil {
		b.runs = b.runs[:0]
		return errors.Is(err, errFull), err
	}
	b.collect(readers, b.extent)
	return false, nil
}

// reset returns readers for the tasks, which have read nothing.
func (b *block) reset(q *Querier, s *set) []*reader {
	n := min(q.Concurrency, len(b.tasks))
	for len(b.readers) < n {
		b.readers = append(b.readers, new(reader))
	}
	for _, r := range b.readers[:n] {
		r.reset(q, s)
	}
	return b.readers[:n]
}

// release gives a block, or nil, up for another query.
func (q *Querier) release(b *block) {
	if b == nil {
		return
	}
	for _, r := range b.readers {
		r.release(q)
	}
	b.slabs.release()
	b.giveBack()
	if cap(b.merged.T) <= aimedPoints {
		q.blocks.Put(b)
	}
}
