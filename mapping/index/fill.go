package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/store"
)

// maxRowsRead bounds the rows that filling the memory reads: it goes on to no other day when it has read so many.
const maxRowsRead = 32 << 20

// Build fills the memory anew from the store and returns when it holds what it can. From its first day on it answers
// for the days that it has; until then, and if nothing fits, what was there before does. There must be one Build at a
// time.
func (m *Memory) Build(ctx context.Context) error {
	fits, err := m.build(ctx, nil)
	if fits || err != nil {
		return err
	}
	largest, err := m.largest(ctx)
	if len(largest) == 0 || err != nil {
		return err
	}
	_, err = m.build(ctx, largest)
	return err
}

// build is Build without some metrics; fits says whether there was room.
func (m *Memory) build(ctx context.Context, without []mapping.UID) (fits bool, err error) {
	s := &loaded{Set: postings.New(m.Settings.Schema), from: never}
	for _, metric := range without {
		s.LeaveOut(metric)
	}
	m.mu.Lock()
	m.building = s
	select {
	case <-m.overfull:
	default:
	}
	m.mu.Unlock()
	err = m.fill(ctx, s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.building = nil
	s.IgnoreBefore(s.from)
	return m.serving == s, err
}

// largest are the metrics with most series on the latest day, as many as have to be left out so that there is room for
// the others, and for some more; none if that is too many.
func (m *Memory) largest(ctx context.Context) ([]mapping.UID, error) {
	day, err := m.lastDay(ctx, never-1)
	if err != nil || day < 0 {
		return nil, err
	}
	series, all := make(map[mapping.UID]int), 0
	prefix := appendDay(nil, mapping.Day(day))
	scan := store.Scan{Table: m.Settings.Tables.System, Ranges: []store.Range{store.PrefixRange(prefix)}}
	for row, err := range m.Store.Scan(ctx, scan) {
		if err != nil {
			return nil, fmt.Errorf("read series index: %w", err)
		}
		tsuid := row.Key[len(prefix):]
		if len(tsuid) < m.Settings.Schema.MetricWidth {
			continue
		}
		metric, _ := m.Settings.Schema.ParseUID(mapping.Metric, tsuid[:m.Settings.Schema.MetricWidth])
		series[metric]++
		if all++; len(series) > m.MaxSeries {
			return nil, nil
		}
	}
	metrics := slices.SortedFunc(maps.Keys(series), func(a,
		b mapping.UID) int {
		return cmp.Compare(series[b], series[a])
	})
	n := 0
	for ; n < len(metrics) && all > m.MaxSeries/4*3; n++ {
		all -= series[metrics[n]]
	}
	if n > postings.MaxLeftOut/2 {
		return nil, nil
	}
	return metrics[:n], nil
}

// fill reads day after day, from the latest back, until all is read or enough.
func (m *Memory) fill(ctx context.Context, s *loaded) error {
	if m.feed != nil && m.MaxSeries > 0 {
		// What others have added since the store was last looked at comes before the days are read.
		if err := m.feed.Read(ctx); err != nil {
			return err
		}
	}
	// Of the days before the latest so many are read as leave room for series to come.
	rows, room := 0, m.MaxSeries
	for next := never - 1; ; room = m.MaxSeries / 8 * 7 {
		day, err := m.lastDay(ctx, next)
		if err != nil {
			return fmt.Errorf("read series index: %w", err)
		}
		if done := m.reached(s, day+1, day < 0, next < never-1); done || rows > maxRowsRead {
			return nil
		}
		n, err := m.fillDay(ctx, s, mapping.Day(day), room)
		switch {
		case errors.Is(err, errFull):
			return nil
		case err != nil:
			return fmt.Errorf("read series index: %w", err)
		}
		rows += n
		if m.reached(s, day, day == 0, true) {
			return nil
		}
		next = day - 1
	}
}

var errFull = errors.New("more series than the memory may hold")

// reached notes that all is loaded from a day on, and serves with it. done says that it need not go on.
func (m *Memory) reached(s *loaded, from int, all, serve bool) (done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all || from <= m.kept {
		from, done = 0, true
	}
	s.from = from
	if s.spoilt {
		return true
	}
	if serve || done {
		m.serving = s
	}
	return done
}

// lastDay is the last day, up to one, of which there are rows; -1 if there is none.
func (m *Memory) lastDay(ctx context.Context, upTo int) (day int, err error) {
	// There is no scan backwards: the day is found by halving, where the first row at or after a day tells which day it
	// is of. Most often it is the first that is looked at.
	day = -1
	for low, high, middle := 0, upTo, upTo; low <= high; middle = low + (high-low)/2 {
		first, err := m.firstDay(ctx, middle, high)
		if err != nil {
			return 0, err
		}
		if first >= 0 {
			day, low = first, first+1
		} else {
			high = middle - 1
		}
	}
	return day, nil
}

// firstDay is the first day of some that has rows, -1 if none has.
func (m *Memory) firstDay(ctx context.Context, first, last int) (day int, err error) {
	day = -1
	scan := store.Scan{Table: m.Settings.Tables.System, Limit: 1, Ranges: []store.Range{{
		Start: appendDay(nil, mapping.Day(first)), Stop: store.PrefixEnd(appendDay(nil, mapping.Day(last))),
	}}}
	for row, err := range m.Store.Scan(ctx, scan) {
		if err != nil {
			return 0, err
		}
		day = int(parseDay(row.Key))
	}
	return day, nil
}

// fillDay reads the rows of one day, as long as the series are no more than max.
func (m *Memory) fillDay(ctx context.Context, s *loaded, day mapping.Day, max int) (rows int, err error) {
	const page = 512 // rows that are added under one lock
	var slab []byte
	var ends []int
	flush := func() (ok bool) {
		ok = s.AddAll(slab, ends, day, max)
		slab, ends = slab[:0], ends[:0]
		return ok
	}
	prefix := appendDay(nil, day)
	scan := store.Scan{Table: m.Settings.Tables.System, Ranges: []store.Range{store.PrefixRange(prefix)}}
	for row, err := range m.Store.Scan(ctx, scan) {
		if err != nil {
			return rows, err
		}
		rows++
		slab = append(slab, row.Key[len(prefix):]...)
		if ends = append(ends, len(slab)); len(ends) == page && !flush() {
			return rows, errFull
		}
	}
	if !flush() {
		return rows, errFull
	}
	return rows, nil
}
