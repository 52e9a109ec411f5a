package query

import (
	"context"
	"slices"
	"sort"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/query/budget"
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
	hours      []uint32            // base times at which there may be samples, ascending
	population map[mapping.UID]int // of how many series each metric has rows
	rowRegexp  string              // that all wanted rows match
	mint, maxt int64
	windows    *Windows // outside of them there are no samples

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

	warnings []error
	touched  Touched
	holding  // of what the index has found
}

type fetched struct {
	block    *block
	warnings []error
	err      error
}

// newSet returns the set of what an index has found; start begins to read.
func newSet(ctx context.Context, q *Querier, found index.Result, mint, maxt int64) *set {
	ctx, cancel := context.WithCancel(ctx)
	return &set{
		ctx: ctx, cancel: cancel, holding: holding{budget.From(ctx), found.Bytes},
		q: q, groups: groupByLabels(found.Series), hours: found.Hours, mint: mint, maxt: maxt,
		population: found.Metrics, rowRegexp: found.RowRegexp, rows: firstRows, group: -1,
	}
}

// look leaves out what is not in a window.
func (s *set) look(w *Windows) {
	s.windows = w
	s.hours = slices.DeleteFunc(s.hours, func(base uint32) bool { return !s.overlap(base) })
}

// overlap says whether samples of an hour may be wanted.
func (s *set) overlap(base uint32) bool {
	from := int64(base) * 1000
	to := from + mapping.HourMs - 1
	if s.windows != nil && s.windows.before {
		to += mapping.HourMs
	}
	return s.windows.Overlap(max(from, s.mint), min(to, s.maxt))
}

func (s *set) start() {
	s.current, s.spare = s.q.blocks.Get().(*block), s.q.blocks.Get().(*block)
	s.current.extent, s.current.runs = extent{}, s.current.runs[:0]
	if len(s.groups) > 0 && len(s.hours) > 0 {
		s.fetchAhead()
	} else {
		s.warn(s.missing())
	}
}

// extentOf sizes the next extent for so many rows; at least one row.
func (s *set) extentOf(e extent, rows int) extent {
	hours := len(s.hours) - e.begin
	first := &s.groups[e.from]
	e.to, e.end = e.from+1, len(s.hours)
	total := first.rows(s.hours)
	if e.begin > 0 || total > rows {
		// One group over a part of its hours, or over what is left of them.
		e.end = e.begin + min(hours, max(1, rows/len(first.series)))
		return e
	}
	for ; e.to < len(s.groups); e.to++ {
		if total += s.groups[e.to].rows(s.hours); total > rows {
			break
		}
	}
	return e
}

// rows is the number of a group's rows at some hours.
func (g *group) rows(hours []uint32) (n int) {
	for _, s := range g.series {
		if s.Days == nil {
			n += len(hours)
			continue
		}
		for _, run := range s.Days {
			n += firstOf(hours, int(run.Last)+1) - firstOf(hours, int(run.First))
		}
	}
	return n
}

// firstOf is the position of the first hour that is of a day, or of one after it.
func firstOf(hours []uint32, day int) int {
	return sort.Search(len(hours), func(i int) bool { return dayOf(hours[i]) >= day })
}

func dayOf(base uint32) int { return int(mapping.DayOf(int64(base) * 1000)) }

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
			warnings, err := b.gatherBuffered(s.ctx, s)
			full := false
			if err == nil {
				warnings = append(warnings, s.missing()...)
				full, err = b.fill(s.ctx, s.q, s)
			}
			if !full {
				ahead <- fetched{b, warnings, err}
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
	s.warn(f.warnings)
	if f.err != nil {
		s.err = f.err
		s.spare = f.block
		return false
	}
	s.spare, s.current, s.run = s.current, f.block, 0
	s.touched.add(s.current.touched)
	s.q.metrics.touch(s.current.touched)
	if points := s.current.touched.Samples; points > 0 {
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
	s.view = r.points.Slice(r.from, r.to)
	return &s.view
}

// missing says why the store may lack samples of the range.
func (s *set) missing() []error {
	if s.q.Missing == nil {
		return nil
	}
	return s.q.Missing(s.ctx, s.mint)
}

func (s *set) Err() error { return s.err }

func (s *set) Warnings() []error { return s.warnings }

// warn adds warnings, each once.
func (s *set) warn(warnings []error) {
	for _, w := range warnings {
		if !slices.ContainsFunc(s.warnings, func(have error) bool { return have.Error() == w.Error() }) {
			s.warnings = append(s.warnings, w)
		}
	}
}

func (s *set) Close() {
	s.cancel()
	if s.ahead != nil {
		s.spare = (<-s.ahead).block
		s.ahead = nil
	}
	s.q.release(s.current)
	s.q.release(s.spare)
	s.current, s.spare = new(block), nil
	s.giveBack()
}

// release gives a block, or nil, up for another query.
func (q *Querier) release(b *block) {
	if b == nil {
		return
	}
	for _, r := range b.readers {
		r.release(q)
	}
	b.slabs.release()
	b.giveBack()
	if cap(b.merged.T) <= aimedPoints {
		q.blocks.Put(b)
	}
}
