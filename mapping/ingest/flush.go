package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

const (
	flushRows  = 16_000   // rows that are on their way into the store, at most; each lane has its share
	flushBytes = 16 << 20 // bytes of points that are, roughly
)

// flusher is the memory of one goroutine that flushes.
type flusher struct {
	a      *Appender
	rows   []flushRow
	keys   []byte
	tsuid  []byte
	bytes  int
	latest int64 // cell timestamp given
	batch  store.Batch
	cells  int
	merger mapping.CellMerger
	merges []*flushRow // the rows to be merged
	olds   []store.Cell

	qualifier, value []byte
}

// flushRow is a row whose points are flushed.
type flushRow struct {
	series *series
	base   uint32
	points []byte // what is flushed of it; valid until the row is settled, which only this flusher does
	sorted bool
	mixed  bool // there may be native histograms among the points
	merge  bool // the row's hour has ended, and the store has cells of it
	merged bool // they have become one with the points
	time   int64
	key    []byte
}

// flush makes the waiting points of a bucket durable in the data table.
func (f *flusher) flush(ctx context.Context, b *bucket) error {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	b.mu.Lock()
	members := b.members
	b.members, b.taken, b.oldest = nil, b.oldest, none
	b.mu.Unlock()

	var err error
	var done place // what comes before it is flushed
	for done.member < len(members) && err == nil {
		next := f.take(members, done)
		if err = f.write(ctx); err == nil {
			f.settle()
			done = next
		} else {
			f.giveBack()
		}
	}
	b.mu.Lock()
	if err != nil {
		b.oldest = b.oldest.min(b.taken)
	}
	b.taken = none
	b.mu.Unlock()
	f.relist(b, members)
	return err
}

// place is where a flush has got to in a list of members.
type place struct {
	member int
	base   uint32 // rows of this member before it are done
}

// take gathers the rows of members from one place on, and returns the place it stopped at. A flush takes what waited
// when it began: what comes meanwhile is left to the next, where it is of rows that are behind.
func (f *flusher) take(members []*series, from place) (next place) {
	f.rows, f.keys, f.bytes, f.latest = f.rows[:0], f.keys[:0], 0, 0
	now := f.a.Now().Unix()
	for next = from; next.member < len(members); next = (place{member: next.member + 1}) {
		s := members[next.member]
		s.lock()
		// Cells are ordered by their timestamps, which follow the times at which their samples came.
		t := max(s.arrived, s.runTime+1)
		full := false
		for r := range s.rowsFrom(next.base) {
			if full = len(f.rows) >= flushRows/f.a.lanes || f.bytes >= flushBytes/f.a.lanes; full {
				next.base = r.base
				break
			}
			f.takeRow(s, r, t, now)
		}
		s.unlock()
		if full {
			break
		}
	}
	f.a.cache.gave(f.latest) // what arrives from now on is later
	for i := range f.rows {
		r := &f.rows[i]
		at := len(f.keys)
		f.tsuid = append(f.tsuid[:0], r.series.tsuid...)
		f.keys = f.a.Settings.Schema.AppendRowKey(f.keys, f.tsuid, r.base)
		r.key = f.keys[at:len(f.keys):len(f.keys)]
	}
	slices.SortFunc(f.rows, func(x, y flushRow) int { return bytes.Compare(x.key, y.key) })
	return next
}

// takeRow gathers one row, for cells with a timestamp. Its series must be locked.
func (f *flusher) takeRow(s *series, r *openRow, timestamp, now int64) {
	ended := int64(r.base)+mapping.HourMs/1000 <= now
	merge := f.a.Hold.Merge && ended && r.cells > 0 && (len(r.points) > 0 || r.cells > 1)
	if len(r.points) == 0 && !merge {
		return
	}
	r.flushing = len(r.points)
	f.bytes += len(r.points)
	// A row of very many points becomes several cells, each with a timestamp of its own; two that follow each other have
	// more than maxPointBytes together.
	s.runTime = max(s.runTime, timestamp+int64(2*len(r.points)/maxPointBytes))
	s.runMax = math.MaxInt64
	f.latest = max(f.latest, s.runTime)
	f.rows = append(f.rows, flushRow{
		series: s, base: r.base, points: r.points, sorted: r.ascending, mixed: r.mixed, merge: merge, time: timestamp,
	})
}

// write puts the gathered rows into the store.
func (f *flusher) write(ctx context.Context) error {
	if len(f.rows) == 0 {
		return nil
	}
	begin := time.Now()
	f.batch.Reset()
	f.cells = 0
	err := f.mergeRows(ctx)
	if err == nil {
		for i := range f.rows {
			if r := &f.rows[i]; !r.merged {
				f.putRow(r)
			}
		}
		if err = f.a.reserve(ctx, f.latest); err == nil {
			err = f.a.Store.Apply(ctx, &f.batch)
		}
	}
	m := &f.a.metrics
	m.flushSeconds.Add(time.Since(begin).Seconds())
	if err != nil {
		m.flushErrors.Inc()
		return fmt.Errorf("flush %d rows: %w", len(f.rows), err)
	}
	m.flushes.Inc()
	m.cells.Add(float64(f.cells))
	return nil
}

// putRow adds the points of a row as a cell; as more than one if they are very many.
func (f *flusher) putRow(r *flushRow) {
	for points, t := r.points, r.time; len(points) > 0; t++ {
		piece := points
		if len(piece) > maxPointBytes {
			piece = points[:mapping.CutPoints(points, maxPointBytes)]
		}
		points = points[len(piece):]
		if r.sorted && !r.mixed {
			f.qualifier, f.value = mapping.AppendCell(f.qualifier[:0], f.value[:0], piece)
			f.put(r.key, f.qualifier, t, f.value)
			continue
		}
		f.merger.Reset()
		f.merger.AddPoints(piece, t)
		f.qualifier, f.value = f.merger.AppendCell(f.qualifier[:0], f.value[:0])
		f.putMerged(r.key, t)
	}
}

// putMerged adds the cell that was made of the merger's points, if there are any, and its native histograms.
func (f *flusher) putMerged(key []byte, timestamp int64) {
	if len(f.qualifier) > 0 {
		f.put(key, f.qualifier, timestamp, f.value)
	}
	for offset, stored := range f.merger.Histograms() {
		f.qualifier = mapping.AppendHistogramQualifier(f.qualifier[:0], offset)
		f.put(key, f.qualifier, timestamp, stored)
	}
}

func (f *flusher) put(key, qualifier []byte, timestamp int64, value []byte) {
	f.batch.Put(f.a.Settings.Tables.Data, key, catalog.FamilyData, qualifier, timestamp, value)
	f.cells++
}

// mergeRows reads the rows of ended hours that have cells in the store, and makes one of these and the new points. A
// row that cannot be read is left as it is: its points get a cell of their own, as all rows of the flush would if
// nothing were merged.
func (f *flusher) mergeRows(ctx context.Context) error {
	f.merges = f.merges[:0]
	for i := range f.rows {
		if f.rows[i].merge {
			f.merges = append(f.merges, &f.rows[i])
		}
	}
	left, err := f.mergeEach(ctx, f.merges)
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	for i := range left { // one of them it was
		_, err := f.mergeEach(ctx, left[i:i+1])
		if errors.Is(err, store.ErrCorrupt) {
			f.unreadable(left[i].key, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// mergeEach reads some of the rows, and returns those that it did not come to before an error.
func (f *flusher) mergeEach(ctx context.Context, rows []*flushRow) (left []*flushRow, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	get := store.Get{Table: f.a.Settings.Tables.Data, Columns: []store.Column{{Family: catalog.FamilyData}}}
	for _, r := range rows {
		get.Rows = append(get.Rows, r.key)
	}
	for row, err := range f.a.Store.Get(ctx, get) {
		if err != nil {
			return rows, err
		}
		for !bytes.Equal(rows[0].key, row.Key) {
			rows = rows[1:]
		}
		rows[0].merged = f.mergeRow(rows[0], row)
		rows = rows[1:]
	}
	return nil, nil
}

// unreadable tells of a row whose cells stay as they are, because the store or promtsd cannot read one of them.
func (f *flusher) unreadable(row []byte, err error) {
	f.a.metrics.unreadable.Inc()
	f.a.Logger.Error("left the cells of a row as they are: one cannot be read", "table", f.a.Settings.Tables.Data,
		"row", f.a.UIDs.FormatRowKey(row), "err", err)
}

// mergeRow makes one cell of a row's and the new points, if that is safe and worth it. Native histograms stay in cells
// of their own; they count where they share an instant with points.
func (f *flusher) mergeRow(r *flushRow, row store.Row) bool {
	f.merger.Reset()
	f.olds = f.olds[:0]
	size, latest, cells := len(r.points), r.time, 0
	for _, c := range row.Cells {
		histogram := mapping.IsHistogramCell(c.Qualifier)
		if len(c.Qualifier)%2 != 0 && !histogram {
			if c.Qualifier[0] == 0x05 { // OpenTSDB appends to it, and all its points have the timestamp of the last
				return false
			}
			continue
		}
		if err := f.merger.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
			f.unreadable(row.Key, err)
			return false
		}
		latest = max(latest, c.Timestamp)
		f.olds = append(f.olds, c)
		if !histogram {
			size += len(c.Qualifier) + len(c.Value)
			cells++
		}
	}
	if size > 2*maxPointBytes || cells == 0 || cells == 1 && len(r.points) == 0 {
		return false
	}
	f.merger.AddPoints(r.points, r.time)
	f.qualifier, f.value = f.merger.AppendCell(f.qualifier[:0], f.value[:0])
	for _, c := range f.olds {
		keep := bytes.Equal(c.Qualifier, f.qualifier)
		if mapping.IsHistogramCell(c.Qualifier) {
			keep = f.merger.HasHistogram(c.Qualifier)
		}
		if !keep {
			f.batch.Delete(f.a.Settings.Tables.Data, r.key, catalog.FamilyData, c.Qualifier, c.Timestamp)
		}
	}
	f.putMerged(r.key, latest)
	f.a.metrics.merged.Inc()
	return true
}

// settle notes that the gathered rows are in the store.
func (f *flusher) settle() {
	for i := range f.rows {
		r := &f.rows[i]
		r.series.lock()
		row := r.series.find(r.base)
		row.settle()
		switch {
		case !f.a.Hold.Merge || r.merge && !r.merged:
			row.cells = 0 // nothing to merge, or not to be merged
		case r.merged:
			row.cells = 1
		case row.cells < 255:
			row.cells++
		}
		r.series.unlock()
	}
}

// giveBack notes that they are not.
func (f *flusher) giveBack() {
	for i := range f.rows {
		s := f.rows[i].series
		s.lock()
		s.find(f.rows[i].base).flushing = 0
		s.unlock()
	}
}

// relist lists those of a bucket's members again that have more to flush, and lets go of the others' memory.
func (f *flusher) relist(b *bucket, members []*series) {
	a := f.a
	var kept []*series
	freed := 0
	scarce := a.table.held.Load() > a.Hold.MaxMemory/4
	for _, s := range members {
		s.lock()
		if s.earlier != nil {
			freed += s.earlier.drop(func(r *openRow) bool { return !r.pending() })
			if len(s.earlier.pieces) == 0 {
				s.earlier = nil
				freed += listBytes
			}
		}
		c := &s.current
		if scarce && len(c.points) == 0 {
			freed += cap(c.points)
			c.points = nil
		}
		s.member = c.pending() || s.earlier != nil
		if s.member {
			kept = append(kept, s)
		} else {
			freed += memberBytes
		}
		idle := s.idle()
		s.unlock()
		if idle {
			a.table.settled(s)
		}
	}
	a.table.held.Add(int64(-freed))
	b.mu.Lock()
	b.members = append(b.members, kept...)
	b.mu.Unlock()
}
