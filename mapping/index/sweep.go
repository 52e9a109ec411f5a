package index

import (
	"context"
	"encoding/binary"
	"iter"
	"time"

	"github.com/promtsd/promtsd/store"
)

// newsMark says that rows of news up to a number were there at a time, of this process's monotonic clock.
type newsMark struct {
	upTo uint64
	at   time.Time
}

// sweepBatch is how many rows one batch deletes.
const sweepBatch = 1000

// sweep removes rows of all writers, dead ones too, that it has seen for newsAge, and marks those that are there now.
// Whoever reads news has read them by then, or begins anew.
func (n *news) sweep(ctx context.Context, now time.Time) error {
	left := make(map[[8]byte]bool)
	for start := []byte{newsPrefix}; ; {
		id, err := n.writerFrom(ctx, start)
		if err != nil {
			return err
		}
		if id == nil {
			break
		}
		if left[*id], err = n.sweepWriter(ctx, *id, now); err != nil {
			return err
		}
		start = Successor(newsKey(*id, 0)[:9])
	}
	for id := range n.marks {
		if !left[id] {
			delete(n.marks, id)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.writers {
		if !left[id] {
			delete(n.writers, id) // if it is only silent, it is met again
		}
	}
	return nil
}

// writerFrom returns the first writer that has rows from a key on, nil if there is none.
func (n *news) writerFrom(ctx context.Context, start []byte) (*[8]byte, error) {
	scan := store.Scan{Table: n.m.Settings.Tables.System, Ranges: []store.Range{{Start: start, Stop: []byte{newsPrefix + 1}}}}
	for row, err := range n.m.Store.Scan(ctx, scan) {
		if err != nil {
			return nil, err
		}
		if len(row.Key) == newsRow {
			id := [8]byte(row.Key[1:])
			return &id, nil
		}
	}
	return nil, nil
}

// sweepWriter removes a writer's rows that are due, marks the others, and says whether there are any.
func (n *news) sweepWriter(ctx context.Context, id [8]byte, now time.Time) (left bool, err error) {
	marks, last := n.marks[id], uint64(0)
	for len(marks) > 0 && now.Sub(marks[0].at) >= newsAge {
		last, marks = marks[0].upTo, marks[1:]
	}
	var b store.Batch
	if last > 0 {
		for row, err := range n.rows(ctx, id, 0, last) {
			if err != nil {
				return false, err
			}
			for _, c := range row.Cells {
				b.Delete(n.m.Settings.Tables.System, row.Key, c.Family, c.Qualifier, c.Timestamp)
			}
			if b.Len() >= sweepBatch {
				if err := n.m.Store.Apply(ctx, &b); err != nil {
					return false, err
				}
				b.Reset()
			}
		}
		if err := n.m.Store.Apply(ctx, &b); err != nil {
			return false, err
		}
	}
	if len(marks) > 0 {
		last = marks[len(marks)-1].upTo
	}
	newest := last
	for row, err := range n.rows(ctx, id, last+1, ^uint64(0)-1) {
		if err != nil {
			return false, err
		}
		if len(row.Key) == newsRow {
			newest = binary.BigEndian.Uint64(row.Key[9:])
		}
	}
	if newest > last {
		marks = append(marks, newsMark{newest, now})
	}
	n.marks[id] = marks
	return len(marks) > 0, nil
}

// rows are those of a writer from one number to another.
func (n *news) rows(ctx context.Context, id [8]byte, from, to uint64) iter.Seq2[store.Row, error] {
	return n.m.Store.Scan(ctx, store.Scan{Table: n.m.Settings.Tables.System, Ranges: []store.Range{{
		Start: newsKey(id, from), Stop: newsKey(id, to+1),
	}}})
}
