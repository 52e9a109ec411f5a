package query

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
)

const (
	firstRows   = 512     // rows of a query's first block
	maxRows     = 16384   // rows of any block
	aimedPoints = 1 << 19 // samples that a block should hold; its rows are chosen by what the block before held

	// maxBlockPoints ends the filling of a block early; it is then planned anew with fewer rows, down to one hour of one
	// group. A row holds 3.6 million points at the very most.
	maxBlockPoints = 8 << 20
)

// set is the SeriesSet of a Select. It reads one block ahead of its consumer.
type set struct {
	ctx        context.Context
	cancel     context.CancelFunc
	q          *Querier
	groups     []group
	hours      []uint32 // base times at which there may be samples, ascending
	mint, maxt int64

	// next is what the block after the one being read begins with.
	next extent
	rows int // how many rows it should have

	ahead   chan fetched // the block being read, nil if none is
	current *block
	spare   *block
	run     int // the current block's next run
	group   int // the current group, -1 before the first
	view    mapping.Points
	err     error
}

type fetched struct {
	block *block
	err   error
}

func newSet(ctx context.Context, q *Querier, groups []group, hours []uint32, mint, maxt int64) *set {
	ctx, cancel := context.WithCancel(ctx)
	s := &set{
		ctx: ctx, cancel: cancel, q: q, groups: groups, hours: hours, mint: mint, maxt: maxt,
		rows: firstRows, current: new(block), spare: new(block), group: -1,
	}
	if len(groups) > 0 && len(hours) > 0 {
		s.fetchAhead()
	}
	return s
}

// extentOf sizes the next extent for so many rows; at least one row.
func (s *set) extentOf(e extent, rows int) extent {
	hours := len(s.hours) - e.begin
	aliases := len(s.groups[e.from].tsuids)
	e.to, e.end = e.from+1, len(s.hours)
	if hours*aliases > rows || e.begin > 0 {
		// One group over a part of its hours, or over what is left of them.
		e.end = e.begin + min(hours, max(1, rows/aliases))
		return e
	}
	for total := hours * aliases; e.to < len(s.groups); e.to++ {
		if total += hours * len(s.groups[e.to].tsuids); total > rows {
			break
		}
	}
	return e
}

// after is what follows an extent; ok is false at the end.
func (s *set) after(e extent) (next extent, ok bool) {
	if e.end < len(s.hours) {
		return extent{from: e.from, begin: e.end}, true
	}
	return extent{from: e.to}, e.to < len(s.groups)
}

// fetchAhead starts reading the next block into the spare one.
func (s *set) fetchAhead() {
	b, e, rows := s.spare, s.next, s.rows
	s.spare = nil
	ahead := make(chan fetched, 1)
	s.ahead = ahead
	go func() {
		for {
			b.plan(s.q.Settings.Schema, s.groups, s.hours, s.extentOf(e, rows))
			full, err := b.fill(s.ctx, s.q, s.mint, s.maxt)
			if !full || err != nil {
				ahead <- fetched{b, err}
				return
			}
			rows = max(1, b.rows/8)
		}
	}()
}

// advance makes the block that was read ahead the current one. False means that there is none, or an error.
func (s *set) advance() bool {
	if s.ahead == nil || s.err != nil {
		return false
	}
	f := <-s.ahead
	s.ahead = nil
	if f.err != nil {
		s.err = f.err
		s.spare = f.block
		return false
	}
	s.spare, s.current, s.run = s.current, f.block, 0
	if points := s.current.points.Len(); points > 0 {
		s.rows = min(maxRows, max(1, s.current.rows*aimedPoints/points))
	} else {
		s.rows = min(maxRows, s.rows*4)
	}
	next, more := s.after(s.current.extent)
	if more {
		s.next = next
		s.fetchAhead()
	}
	return true
}

func (s *set) Next() bool {
	for {
		for ; s.run < len(s.current.runs); s.run++ {
			if g := s.current.runs[s.run].group; g != s.group {
				s.group = g
				return true
			}
		}
		if !s.advance() {
			return false
		}
	}
}

func (s *set) Labels() labels.Labels { return s.groups[s.group].labels }

func (s *set) Points() *mapping.Points {
	for s.run == len(s.current.runs) {
		// The next block goes on with this group only if this one ended before the last hour.
		if s.current.to == 0 || s.current.to-1 != s.group || s.current.end == len(s.hours) || !s.advance() {
			return nil
		}
	}
	r := s.current.runs[s.run]
	if r.group != s.group {
		return nil
	}
	s.run++
	s.view.T, s.view.V = s.current.points.T[r.from:r.to], s.current.points.V[r.from:r.to]
	return &s.view
}

func (s *set) Err() error { return s.err }

func (s *set) Close() {
	s.cancel()
	if s.ahead != nil {
		<-s.ahead
		s.ahead = nil
	}
}
