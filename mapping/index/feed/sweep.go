package feed

import (
	"context"
	"iter"
	"time"

	"github.com/promtsd/promtsd/store"
)

// mark says that a writer's rows up to a number were there at a time of this process's monotonic clock.
type mark struct {
	upTo uint64
	at   time.Time
}

// sweepBatch is how many rows one batch deletes.
const sweepBatch = 1000

// Sweep removes the rows that it has seen for two hours, of all writers, ended ones too. It marks the rows that are
// there now. A reader has read them when they are removed, or it begins anew.
func (f *Feed) Sweep(ctx context.Context, now time.Time) error {
	left := make(map[writerID]bool)
	for start := []byte{rowPrefix}; ; {
		id, err := f.writerFrom(ctx, start)
		if err != nil {
			return err
		}
		if id == nil {
			break
		}
		if left[*id], err = f.sweepWriter(ctx, *id, now); err != nil {
			return err
		}
		start = store.PrefixEnd(id.head())
	}
	for id := range f.marks {
		if !left[id] {
			delete(f.marks, id)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.writers {
		if !left[id] {
			delete(f.writers, id) // a writer that is only silent is met again
		}
	}
	return nil
}

// writerFrom returns the first writer that has rows from a key on, nil if there is none.
func (f *Feed) writerFrom(ctx context.Context, start []byte) (*writerID, error) {
	scan := store.Scan{Table: f.Table, Ranges: []store.Range{{Start: start, Stop: []byte{rowPrefix + 1}}}}
	for row, err := range f.Store.Scan(ctx, scan) {
		if err != nil {
			return nil, err
		}
		if len(row.Key) == keyBytes {
			id, _ := parseKey(row.Key)
			return &id, nil
		}
	}
	return nil, nil
}

// sweepWriter removes a writer's rows that are due, marks the others, and says whether there are any.
func (f *Feed) sweepWriter(ctx context.Context, id writerID, now time.Time) (left bool, err error) {
	marks, last := f.marks[id], uint64(0)
	for len(marks) > 0 && now.Sub(marks[0].at) >= maxAge {
		last, marks = marks[0].upTo, marks[1:]
	}
	if last > 0 {
		if err := f.remove(ctx, id, last); err != nil {
			return false, err
		}
	}
	if len(marks) > 0 {
		last = marks[len(marks)-1].upTo
	}
	newest := last
	for row, err := range f.rows(ctx, id, last+1, ^uint64(0)-1) {
		if err != nil {
			return false, err
		}
		if len(row.Key) == keyBytes {
			_, newest = parseKey(row.Key)
		}
	}
	if newest > last {
		marks = append(marks, mark{newest, now})
	}
	f.marks[id] = marks
	return len(marks) > 0, nil
}

// remove deletes a writer's rows up to a number.
func (f *Feed) remove(ctx context.Context, id writerID, upTo uint64) error {
	var b store.Batch
	for row, err := range f.rows(ctx, id, 0, upTo) {
		if err != nil {
			return err
		}
		for _, c := range row.Cells {
			b.Delete(f.Table, row.Key, c.Family, c.Qualifier, c.Timestamp)
		}
		if b.Len() >= sweepBatch {
			if err := f.Store.Apply(ctx, &b); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return f.Store.Apply(ctx, &b)
}

// rows are a writer's rows from one number to another, both included.
func (f *Feed) rows(ctx context.Context, id writerID, from, to uint64) iter.Seq2[store.Row, error] {
	return f.Store.Scan(ctx, store.Scan{Table: f.Table, Ranges: []store.Range{{
		Start: appendKey(nil, id, from), Stop: appendKey(nil, id, to+1),
	}}})
}
