package index

import (
	"bytes"
	"context"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/store"
)

// The list of all series tells which match, and not when they were active: in a range of many days that is told by the
// rows of its days. They are read for many series at a time, so that no range of days is read again and again.

const (
	// maxPending is for how many series at a time the days are read.
	maxPending = 1 << 16
	// maxRanges is in how many ranges the rows of a day are scanned, one for each metric; beyond, in one.
	maxRanges = 256
	// worthGetting is from how many rows of a scan for each series on it is cheaper to ask for their rows.
	worthGetting = 16
)

// addPending takes in series, in the order of their TSUIDs, of which the days are to be found.
func (s *selection) addPending(ctx context.Context, matched [][]byte) error {
	for _, tsuid := range matched {
		if s.wanted != nil && !s.wanted(tsuid) {
			continue
		}
		s.pending = append(s.pending, bytes.Clone(tsuid))
		if err := s.take(seenBytes + len(tsuid)); err != nil {
			return err
		}
	}
	if len(s.pending) < s.pendingMax {
		return nil
	}
	s.pendingMax = min(2*s.pendingMax, maxPending) // where few are enough, they may be in the first ones
	return s.findDays(ctx)
}

// findDays finds the days of the pending series, and hands on those that have any.
func (s *selection) findDays(ctx context.Context) error {
	if len(s.pending) == 0 {
		return nil
	}
	if s.present == nil {
		var err error
		if s.present, err = s.presentDays(ctx); err != nil {
			return err
		}
	}
	days := make([]postings.Days, len(s.pending))
	ranges := s.pendingRanges()
	scanned := 0 // rows, of the day before that was scanned
	for _, day := range s.present {
		active := func(i int) {
			days[i] = days[i].With(day)
			s.days[day] = struct{}{}
		}
		var err error
		if scanned > worthGetting*len(s.pending) {
			err = s.getActive(ctx, day, active)
		} else {
			scanned, err = s.scanActive(ctx, day, ranges, active)
		}
		if err != nil {
			return err
		}
	}
	n, done := 0, 0
	for i, tsuid := range s.pending {
		done += seenBytes + len(tsuid)
		if days[i] != nil {
			s.pending[n], days[n] = tsuid, days[i]
			n++
		}
	}
	for from := 0; from < n; from += pageSize {
		to := min(n, from+pageSize)
		if err := s.each(ctx, s.pending[from:to], days[from:to]); err != nil {
			return err
		}
	}
	s.pending = s.pending[:0]
	return s.take(-done)
}

// pendingRanges are the ranges of TSUIDs from the first to the last pending series of each metric.
func (s *selection) pendingRanges() (ranges []store.Range) {
	width := s.r.Settings.Schema.MetricWidth
	first := s.pending[0]
	for i, tsuid := range s.pending {
		more := i+1 < len(s.pending)
		if more && (len(ranges) == maxRanges-1 || bytes.HasPrefix(s.pending[i+1], tsuid[:min(width, len(tsuid))])) {
			continue
		}
		ranges = append(ranges, store.Range{Start: first, Stop: append(bytes.Clone(tsuid), 0)})
		if more {
			first = s.pending[i+1]
		}
	}
	return ranges
}

// scanActive calls f with the position of each pending series that was active on a day, and returns the rows of the day
// that it has passed.
func (s *selection) scanActive(ctx context.Context, day mapping.Day, ranges []store.Range, f func(i int)) (rows int,
	err error) {
	prefix := appendDay(nil, day)
	scan := store.Scan{Table: s.r.Settings.Tables.System, Ranges: make([]store.Range, len(ranges))}
	for i, r := range ranges {
		scan.Ranges[i] = store.Range{Start: append(bytes.Clone(prefix), r.Start...),
			Stop: append(bytes.Clone(prefix), r.Stop...)}
	}
	at := 0
	for row, err := range s.r.Store.Scan(ctx, scan) {
		if err != nil {
			return rows, err
		}
		rows++
		tsuid := row.Key[len(prefix):]
		for at < len(s.pending) && bytes.Compare(s.pending[at], tsuid) < 0 {
			at++
		}
		if at < len(s.pending) && bytes.Equal(s.pending[at], tsuid) {
			f(at)
		}
	}
	return rows, nil
}

// getActive is scanActive by asking for the row of each series.
func (s *selection) getActive(ctx context.Context, day mapping.Day, f func(i int)) error {
	prefix := appendDay(nil, day)
	keys := make([][]byte, len(s.pending))
	for i, tsuid := range s.pending {
		keys[i] = append(bytes.Clone(prefix), tsuid...)
	}
	at := 0
	for row, err := range s.r.Store.Get(ctx, store.Get{Table: s.r.Settings.Tables.System, Rows: keys}) {
		if err != nil {
			return err
		}
		for !bytes.Equal(keys[at], row.Key) {
			at++
		}
		f(at)
	}
	return nil
}

// presentDays are the days of the range on which any series was active, found by jumping from each to the next.
func (s *selection) presentDays(ctx context.Context) (present []mapping.Day, err error) {
	present = []mapping.Day{}
	for next := int(s.first); next <= int(s.last); {
		jump := store.Scan{Table: s.r.Settings.Tables.System, Limit: 1, Ranges: []store.Range{{
			Start: appendDay(nil, mapping.Day(next)), Stop: store.PrefixEnd(appendDay(nil, s.last)),
		}}}
		next = int(s.last) + 1
		for row, err := range s.r.Store.Scan(ctx, jump) {
			if err != nil {
				return nil, err
			}
			day := parseDay(row.Key)
			present = append(present, day)
			next = int(day) + 1
		}
	}
	return present, nil
}
