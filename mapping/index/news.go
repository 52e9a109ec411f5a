package index

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Where several processes write to one store, each batch with index rows holds a row besides that repeats them, so that
// the others find what is new without reading the days again:
//
//	own table:  row 'n' | writer (8 random bytes) | number (8 bytes, from 1) | family "p" | empty qualifier
//	            value: of each index row: its length (2 bytes) | day (2 bytes) | TSUID
//
// A process numbers its rows one by one. They may become visible in another order, and some never, so a reader reads
// again from the first number that it misses, until it has missed it for so long that its batch must have failed. No
// clock of one process is compared with that of another's, also not for removing rows that are hours old (sweep.go).

const (
	newsPrefix = 'n'
	newsRow    = 1 + 8 + 8
	newsBytes  = 64 << 10         // of a row, about
	newsGap    = 10 * time.Minute // how long a number is waited for; longer than any batch may take
	newsAge    = 2 * time.Hour    // for how long a row is seen before it is removed
	newsMissed = newsAge / 2      // a reader that did not read for so long begins anew
	newsSweeps = newsAge / 8      // how often rows are removed
)

// news writes what this process adds to the index for other processes, and reads what they have added.
type news struct {
	m      *Memory
	id     [8]byte
	number atomic.Uint64
	lost   chan struct{} // has an entry when news may have been missed, and the memory must be filled anew

	marks map[[8]byte][]newsMark // of writers whose rows are to be removed; sweep's, which is one at a time

	mu      sync.Mutex // held while news are read
	writers map[[8]byte]*newsWriter
	began   atomic.Pointer[time.Time] // when the last reading that succeeded began; nil before the first
}

// newsWriter is how far the news of one writer have been read.
type newsWriter struct {
	next  uint64              // all numbers before it are read, or given up
	above map[uint64]struct{} // numbers after it that are read
	since time.Time           // since when next has been missed, while above is not empty
}

func (n *news) init(m *Memory) {
	n.m, n.lost, n.writers = m, make(chan struct{}, 1), make(map[[8]byte]*newsWriter)
	n.marks = make(map[[8]byte][]newsMark)
	_, _ = rand.Read(n.id[:]) // never fails
}

func newsKey(writer [8]byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{newsPrefix}, writer[:]...), number)
}

// put adds what others have to know of some index rows of the batch.
func (n *news) put(b *store.Batch, rows []int) {
	var value []byte
	now := b.At(rows[0]).Timestamp
	put := func() {
		b.Put(n.m.Settings.Tables.System, newsKey(n.id, n.number.Add(1)), catalog.FamilySystem, emptyQualifier, now, value)
		value = value[:0]
	}
	for _, i := range rows {
		entry := b.At(i).Row[1:]
		value = binary.BigEndian.AppendUint16(value, uint16(len(entry)))
		if value = append(value, entry...); len(value) >= newsBytes {
			put()
		}
	}
	if len(value) > 0 {
		put()
	}
}

// read learns what other processes have added.
func (n *news) read(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	begin := time.Now()
	scan := store.Scan{Table: n.m.Settings.Tables.System, Ranges: n.unread()}
	for row, err := range n.m.Store.Scan(ctx, scan) {
		if err != nil {
			return fmt.Errorf("read what other promtsd have added to the series index: %w", err)
		}
		if len(row.Key) != newsRow || len(row.Cells) == 0 {
			continue // none of ours
		}
		id, number := [8]byte(row.Key[1:]), binary.BigEndian.Uint64(row.Key[9:])
		w := n.writers[id]
		if w == nil {
			w = &newsWriter{next: 1, above: make(map[uint64]struct{})}
			n.writers[id] = w
		}
		if _, read := w.above[number]; read || number < w.next {
			continue
		}
		w.above[number] = struct{}{}
		n.m.learnNews(row.Cells[0].Value)
	}
	for _, w := range n.writers {
		w.advance(begin)
	}
	if last := n.began.Load(); last != nil && elapsed(*last, begin) > newsMissed {
		n.lose()
	}
	n.began.Store(&begin)
	return nil
}

// elapsed is the time between two moments; a machine that slept does not count it on its monotonic clock.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// lose says that what is in memory may lack something.
func (n *news) lose() {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.m.serving = nil
	if n.m.building != nil {
		n.m.building.spoilt = true
	}
	select {
	case n.lost <- struct{}{}:
	default:
	}
}

// unread are the ranges of the rows of other writers that are not known to be read.
func (n *news) unread() (ranges []store.Range) {
	ids := append(slices.Collect(maps.Keys(n.writers)), n.id)
	slices.SortFunc(ids, func(a, b [8]byte) int { return bytes.Compare(a[:], b[:]) })
	start := []byte{newsPrefix} // from here on nothing is known, up to the next writer that is
	for _, id := range ids {
		end := Successor(newsKey(id, 0)[:9])
		ranges = append(ranges, store.Range{Start: start, Stop: newsKey(id, 0)})
		if id != n.id {
			ranges = append(ranges, store.Range{Start: newsKey(id, n.writers[id].next), Stop: end})
		}
		start = end
	}
	return append(ranges, store.Range{Start: start, Stop: []byte{newsPrefix + 1}})
}

// advance goes over the numbers that are read, and those that are given up.
func (w *newsWriter) advance(now time.Time) {
	for len(w.above) > 0 {
		if _, read := w.above[w.next]; read {
			delete(w.above, w.next)
			w.next++
			w.since = time.Time{}
			continue
		}
		if w.since.IsZero() {
			w.since = now
		}
		if now.Sub(w.since) < newsGap {
			return
		}
		w.next, w.since = slices.Min(slices.Collect(maps.Keys(w.above))), time.Time{}
	}
}

// learnNews adds what the value of a row says.
func (m *Memory) learnNews(value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var row []byte
	for len(value) >= 2 {
		size := int(binary.BigEndian.Uint16(value))
		if value = value[2:]; size > len(value) || size < dayRowPrefix-1 {
			return // none of ours
		}
		row = append(append(row[:0], dayPrefix), value[:size]...)
		m.learn(row)
		value = value[size:]
	}
}

// fresh says whether all that others had added Refresh ago is known.
func (n *news) fresh() bool {
	began := n.began.Load()
	return began != nil && elapsed(*began, time.Now()) <= n.m.Refresh
}

// keep reads news in time, and removes old ones, until ctx ends.
func (n *news) keep(ctx context.Context) {
	reads, sweeps := time.NewTicker(max(n.m.Refresh/2, time.Millisecond)), time.NewTicker(newsSweeps)
	defer reads.Stop()
	defer sweeps.Stop()
	failing := false
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-reads.C:
			if n.m.MaxSeries > 0 {
				err = n.read(ctx)
			}
		case now := <-sweeps.C:
			if err := n.sweep(ctx, now); err != nil && ctx.Err() == nil {
				n.m.Logger.Warn("what told other promtsd of new series is not removed; trying again", "err", err)
			}
			continue
		}
		if err != nil && !failing && ctx.Err() == nil {
			n.m.Logger.Warn("series that other promtsd add are not seen: queries read the index from the store meanwhile",
				"err", err)
		}
		failing = err != nil
	}
}
