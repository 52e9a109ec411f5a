package feed

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/promtsd/promtsd/store"
)

// position is how far the rows of one writer have been read.
type position struct {
	next  uint64              // all numbers below it are read, or given up
	above map[uint64]struct{} // numbers above it that are read
	since time.Time           // since when next has been missed; zero: it is not missed
}

// Read takes in what other processes have added. An error of the store ends it; what was read until then is taken in.
func (f *Feed) Read(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	begin := time.Now()
	for row, err := range f.Store.Scan(ctx, store.Scan{Table: f.Table, Ranges: f.unread()}) {
		if err != nil {
			return fmt.Errorf("read what other promtsd have added to the series index: %w", err)
		}
		if len(row.Key) != keyBytes || len(row.Cells) == 0 {
			continue // no row of a feed
		}
		id, number := parseKey(row.Key)
		p := f.writers[id]
		if p == nil {
			p = &position{next: 1, above: make(map[uint64]struct{})}
			f.writers[id] = p
		}
		if _, read := p.above[number]; read || number < p.next {
			continue
		}
		p.above[number] = struct{}{}
		f.Apply(Changes(row.Cells[0].Value))
	}
	for _, p := range f.writers {
		p.advance(begin)
	}
	if last := f.began.Load(); last != nil && elapsed(*last, begin) > maxPause {
		f.Lose()
	}
	f.began.Store(&begin)
	return nil
}

// elapsed is the time between two moments. A monotonic clock stands still while the machine sleeps; the other clock may
// be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// unread are the ranges of the rows of other writers that are not known to be read.
func (f *Feed) unread() (ranges []store.Range) {
	ids := append(slices.Collect(maps.Keys(f.writers)), f.id)
	slices.SortFunc(ids, func(a, b writerID) int { return bytes.Compare(a[:], b[:]) })
	start := []byte{rowPrefix} // from here on nothing is known, up to the next writer that is
	for _, id := range ids {
		end := store.PrefixEnd(id.head())
		ranges = append(ranges, store.Range{Start: start, Stop: appendKey(nil, id, 0)})
		if id != f.id {
			ranges = append(ranges, store.Range{Start: appendKey(nil, id, f.writers[id].next), Stop: end})
		}
		start = end
	}
	return append(ranges, store.Range{Start: start, Stop: []byte{rowPrefix + 1}})
}

// advance passes the numbers that are read, and those that are given up.
func (p *position) advance(now time.Time) {
	for len(p.above) > 0 {
		if _, read := p.above[p.next]; read {
			delete(p.above, p.next)
			p.next++
			p.since = time.Time{}
			continue
		}
		if p.since.IsZero() {
			p.since = now
		}
		if now.Sub(p.since) < maxGap {
			return
		}
		p.next, p.since = slices.Min(slices.Collect(maps.Keys(p.above))), time.Time{}
	}
}
