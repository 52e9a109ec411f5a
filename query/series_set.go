package query

import (
	"context"
	"slices"

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

	prefetch chan fetched // the block being read, nil if none is
	current  *block
	spare    *block
	run      int // the current block's next run
	group    int // the current group, -1 before the first
	view     mapping.Points
	err      error

	warnings    []error
	touched     Touched
	reservation // of what the index has found
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
		ctx: ctx, cancel: cancel, reservation: reservation{budget.From(ctx), found.Bytes},
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
		s.prefetchBlock()
	} else {
		s.warn(s.missing())
	}
}

// prefetchBlock starts reading the next block into the spare one.
func (s *set) prefetchBlock() {
	b, e, rows := s.spare, s.next, s.rows
	s.spare = nil
	prefetched := make(chan fetched, 1)
	s.prefetch = prefetched
	go func() {
		for {
			b.listRows(s.q.Settings.Schema, s.groups, s.hours, s.extentOf(e, rows))
			warnings, err := b.readBuffered(s.ctx, s)
			full := false
			if err == nil {
				warnings = append(warnings, s.missing()...)
				full, err = b.read(s.ctx, s.q, s)
			}
			if !full {
				prefetched <- fetched{b, warnings, err}
				return
			}
			rows = max(1, len(b.plan.rows)/8)
		}
	}()
}

// advance makes the block that was read ahead the current one. False means that there is none, or an error.
func (s *set) advance() bool {
	if s.prefetch == nil || s.err != nil {
		return false
	}
	f := <-s.prefetch
	s.prefetch = nil
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
		s.rows = min(maxRows, max(1, len(s.current.plan.rows)*aimedPoints/points))
	} else {
		s.rows = min(maxRows, s.rows*4)
	}
	next, more := s.after(s.current.extent)
	if more {
		s.next = next
		s.prefetchBlock()
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
	if s.prefetch != nil {
		s.spare = (<-s.prefetch).block
		s.prefetch = nil
	}
	s.q.release(s.current)
	s.q.release(s.spare)
	s.current, s.spare = new(block), nil
	s.giveBack()
}
