package pebble

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/promtsd/promtsd/store"
)

// joinBytes is how much data may lie between two dropped ranges that are compacted together: about a file of the last
// level, which either of them would rewrite.
const joinBytes = 128 << 20

// DeleteRange implements store.RangeDeleter. Its space comes back by a compaction in the background, one for all ranges
// that were dropped since the last. One that the end of the process cut short is not made up for at the next Open; then
// the space comes back as the tree's own compactions reach it.
func (s *Store) DeleteRange(ctx context.Context, table string, r store.Range) error {
	if err := s.deleteRange(ctx, table, r); err != nil {
		return fmt.Errorf("delete range of %s: %w", table, err)
	}
	return nil
}

func (s *Store) deleteRange(ctx context.Context, name string, r store.Range) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	t, err := s.catalog.Load().table(name)
	if err != nil {
		return err
	}
	if len(r.Start) > store.MaxRow || len(r.Stop) > store.MaxRow {
		return fmt.Errorf("%w: bounds of %d and %d bytes, at most %d", store.ErrInvalid, len(r.Start), len(r.Stop),
			store.MaxRow)
	}
	var span keySpan
	if span.start, span.end = appendBounds(nil, nil, t.id, r.Start, r.Stop); compareKeys(span.start, span.end) >= 0 {
		return nil
	}
	return s.change(ctx, len(span.start)+len(span.end), func() error {
		if t.log {
			return s.log.Load().deleteEach(span)
		}
		b := s.data.db.NewBatch()
		if err := b.DeleteRange(span.start, span.end, nil); err != nil {
			return classify(err)
		}
		if err := s.data.commit(b); err != nil {
			return err
		}
		if s.dropped.add(span) {
			s.background(s.compactDropped)
		}
		return nil
	})
}

// deleteEach deletes the cells of a span, which the live set knows, so that the reaper finds the gap.
func (t *tree) deleteEach(span keySpan) error {
	if err := t.syncDue(); err != nil {
		return err
	}
	b := t.db.NewBatch()
	t.writeMu.Lock()
	for _, key := range t.reaper.live.within(span.start, span.end) {
		if err := b.Delete(key, nil); err != nil {
			t.writeMu.Unlock()
			return classify(err)
		}
	}
	return t.commitLocked(b, t.writeMu.Unlock)
}

// keySpan is a range of keys, both of them bare prefixes.
type keySpan struct{ start, end []byte }

// droppedRanges are the spans that wait for a compaction.
type droppedRanges struct {
	mu      sync.Mutex
	spans   []keySpan // guarded by mu
	running bool      // guarded by mu: somebody takes them
}

// add adds a span and says whether the caller has to see to somebody who takes it.
func (d *droppedRanges) add(span keySpan) (start bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spans = append(d.spans, span)
	start = !d.running
	d.running = true
	return start
}

// take returns all spans, in order; none means that the caller is done.
func (d *droppedRanges) take() []keySpan {
	d.mu.Lock()
	defer d.mu.Unlock()
	spans := d.spans
	d.spans = nil
	d.running = len(spans) > 0
	slices.SortFunc(spans, func(a, b keySpan) int { return compareKeys(a.start, b.start) })
	return spans
}

// giveBack leaves spans for whoever comes with the next.
func (d *droppedRanges) giveBack(spans []keySpan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spans = append(d.spans, spans...)
	d.running = false
}

// compactDropped gives the space of dropped ranges back, until there are no more.
func (s *Store) compactDropped() error {
	for {
		spans := s.dropped.take()
		if len(spans) == 0 {
			return nil
		}
		joined, err := s.joinSpans(spans)
		for _, span := range joined {
			if err == nil {
				err = classify(s.data.db.Compact(s.ctx, span.start, span.end, true))
			}
		}
		if err != nil {
			s.dropped.giveBack(joined)
			return fmt.Errorf("compact dropped ranges: %w", err)
		}
	}
}

// joinSpans joins those that overlap or have little between them.
func (s *Store) joinSpans(spans []keySpan) ([]keySpan, error) {
	joined := slices.Clone(spans[:1])
	for _, next := range spans[1:] {
		last := &joined[len(joined)-1]
		if compareKeys(last.end, next.start) < 0 {
			between, err := s.data.db.EstimateDiskUsage(last.end, next.start)
			if err != nil {
				return spans, classify(err)
			}
			if between > joinBytes {
				joined = append(joined, next)
				continue
			}
		}
		last.end = slices.MaxFunc([][]byte{last.end, next.end}, compareKeys)
	}
	return joined, nil
}

// appendBounds appends the keys of the rows [start, stop) of a table; empty ones are the ends of the table.
func appendBounds(lower, upper []byte, table byte, start, stop []byte) ([]byte, []byte) {
	lower = appendPrefix(lower, table, start)
	if len(stop) == 0 {
		return lower, appendPrefix(upper, table+1, nil)
	}
	return lower, appendPrefix(upper, table, stop)
}
