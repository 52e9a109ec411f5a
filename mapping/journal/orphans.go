package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// ReplayOrphans replays the entries of writers that have no lease, and then deletes them: what reached the store only
// after the journal was taken over, or is left of a lease that somebody removed. Of such a journal others may be
// missing, so each entry is stored by itself, by a Replayer of its own, which must give cells the time at which it
// came: then it replaces nothing that came later. Several processes may do so at once.
func ReplayOrphans(ctx context.Context, c Config, single func() Replayer) (done Replayed, err error) {
	writers, err := orphans(ctx, c.Store, c.Tables)
	if err != nil {
		return done, fmt.Errorf("look for entries without a lease: %w", err)
	}
	rows := rowReplay{Config: &c}
	defer func() { done = rows.sum() }()
	for _, id := range writers {
		for row, err := range rows.scan(ctx, id, 0) {
			if err != nil {
				return done, fmt.Errorf("look for entries without a lease: %w", err)
			}
			r := single()
			if err := rows.replay(ctx, row, r, new(Turn)); err != nil {
				return done, err
			}
			if err := r.Finish(ctx); err != nil {
				return done, err
			}
			var b store.Batch
			deleteRow(&b, c.Tables.Journal(), row)
			if err := c.Store.Apply(ctx, &b); err != nil {
				return done, fmt.Errorf("delete a journal entry: %w", err)
			}
		}
	}
	return done, nil
}

// orphans lists the writers of entries that have no lease. Where leases are, nothing is read.
func orphans(ctx context.Context, st store.Store, tables catalog.Tables) (writers []ID, err error) {
	leases, err := Leases(ctx, st, tables)
	if err != nil {
		return nil, err
	}
	for from, more := ID(0), true; more; {
		scan := store.Scan{Table: tables.Journal(), Limit: 1, Ranges: between(leases, from)}
		more = false
		for row, err := range st.Scan(ctx, scan) {
			if errors.Is(err, store.ErrNoTable) {
				return nil, nil // never was a journal here
			}
			if err != nil {
				return nil, err
			}
			var key [8]byte
			short := copy(key[:], row.Key) < len(key) // none of ours
			id := ID(binary.BigEndian.Uint64(key[:]))
			if from, more = id, true; !short {
				writers = append(writers, id)
				from, more = id+1, id < ^ID(0)
			}
		}
	}
	if len(writers) == 0 {
		return nil, nil
	}
	// A lease is there before the first entry, and goes after the last: so leases are read once more.
	if leases, err = Leases(ctx, st, tables); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(writers, func(id ID) bool {
		return slices.ContainsFunc(leases, func(l Lease) bool { return l.Writer == id })
	}), nil
}

// between are the rows of the writers from one on that have none of the leases.
func between(leases []Lease, from ID) (ranges []store.Range) {
	start := entryRow(from, 0)
	for _, l := range leases {
		if l.Writer < from {
			continue
		}
		ranges = append(ranges, store.Range{Start: start, Stop: entryRow(l.Writer, 0)})
		if l.Writer == ^ID(0) {
			return ranges
		}
		start = entryRow(l.Writer+1, 0)
	}
	return append(ranges, store.Range{Start: start})
}
