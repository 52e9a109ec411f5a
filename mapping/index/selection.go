package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/store"
)

// pageSize is how many TSUIDs are compared at a time: the texts that the comparison needs are then read together. Where
// few of them are enough it is fewPageSize at first, and doubles.
const (
	pageSize    = 4096
	fewPageSize = 8
)

// selection gathers TSUIDs into pages and hands on those that match.
type selection struct {
	r           *Reader
	p           *predicate
	limits      Limits
	bytes       int64
	mint, maxt  int64
	first       mapping.Day          // that of mint, or the first that is kept
	last        mapping.Day          // that of maxt
	postings    *postings.Set        // nil: the series are not in memory
	intersected *postings.Candidates // what intersect returns; nil before
	access      AccessPath

	// each takes series that match, valid until it returns, and the days of each, if they are known. It may return
	// errEnough.
	each func(ctx context.Context, matched [][]byte, days []postings.Days) error
	// once says that each series is to be handed on once, whatever rows tell of it.
	once bool
	// wanted says whether to look for the days of one that matches; nil: of any.
	wanted func(tsuid []byte) bool

	pageSize   int
	pendingMax int                      // of how many series at a time the days are looked for
	pending    [][]byte                 // such series
	present    []mapping.Day            // on which any series was active
	seen       map[string]int           // TSUIDs met, where the sources may repeat them, and their position in active
	active     []uint64                 // bit i: active on the day first+i
	page       []byte                   // TSUIDs end to end
	ends       []int                    // where each of the page ends
	days       map[mapping.Day]struct{} // on which a candidate was active
	candidates int
	metrics    map[mapping.UID]int // series of each metric met
	found      []Series            // admitted
}

// newSelection returns nil, without an error, if no series can match.
func (r *Reader) newSelection(
	ctx context.Context, mint, maxt int64, limits Limits, matchers []*labels.Matcher,
) (*selection, error) {
	mint, maxt = max(mint, 0), min(maxt, mapping.MaxTime)
	if mint > maxt {
		return nil, nil
	}
	first := mapping.DayOf(mint)
	set := r.inMemory(first)
	if set != nil {
		if first = r.Memory.keptFrom(first); first > mapping.DayOf(maxt) {
			return nil, nil
		}
	}
	var metrics func() []mapping.UID
	if set != nil {
		metrics = func() []mapping.UID {
			all, _ := set.Values(nil, math.MaxInt)
			return all
		}
	}
	p, err := r.newPredicate(ctx, matchers, metrics)
	if err != nil || p == nil {
		return nil, err
	}
	if set != nil && set.Lacks(p.metrics) {
		set, first = nil, mapping.DayOf(mint)
	}
	s := &selection{
		r: r, p: p, limits: limits, mint: mint, maxt: maxt, first: first, last: mapping.DayOf(maxt), postings: set,
		access: r.accessPath(set, mint, maxt), pageSize: pageSize,
		days: make(map[mapping.Day]struct{}), metrics: make(map[mapping.UID]int),
	}
	if limits.Enough > 0 {
		s.pageSize = min(pageSize, max(fewPageSize, limits.Enough))
	}
	s.pendingMax = s.pageSize
	return s, nil
}

// inMemory returns the series in memory, if those are all that there are from a day on, or nil.
func (r *Reader) inMemory(first mapping.Day) *postings.Set {
	if r.Memory == nil || !r.Settings.IndexComplete {
		return nil
	}
	return r.Memory.covering(first)
}

func (r *Reader) accessPath(set *postings.Set, mint, maxt int64) AccessPath {
	switch {
	case set != nil:
		return AccessMemory
	case !r.Settings.IndexComplete:
		return AccessRowKeys
	case isLong(mint, maxt):
		return AccessList
	default:
		return AccessDays
	}
}

// run hands on the series, or some if that is enough.
func (s *selection) run(ctx context.Context) (enough bool, err error) {
	if s.access == AccessMemory {
		err = s.fromMemory(ctx)
	} else {
		err = s.fromStore(ctx)
	}
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}

// fromStore reads every source, and finds the days where those do not tell them.
func (s *selection) fromStore(ctx context.Context) error {
	if m := s.r.Memory; m != nil && m.MaxSeries > 0 && (s.p.metrics == nil || len(s.p.metrics) > fewMetrics) {
		// It goes through all series of a day, say: half of the processors are for others.
		waits := time.NewTimer(wideWait)
		defer waits.Stop()
		select {
		case s.r.wide <- struct{}{}:
			defer func() { <-s.r.wide }()
		case <-waits.C:
			return fmt.Errorf(
				"%w: for %v others have gone through the series of all metrics, which are more than --index.max-series keeps in "+
					"memory: ask again, or for fewer metrics", store.ErrUnavailable, wideWait)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, src := range s.r.scans(s.mint, s.maxt, s.p) {
		if err := s.read(ctx, src); err != nil {
			return err
		}
	}
	if err := s.flush(ctx); err != nil || s.access != AccessList {
		return err
	}
	return s.findDays(ctx)
}

// tellDays notes the days on which the series admitted were active, and how many others their metrics have.
func (s *selection) tellDays(ctx context.Context) error {
	switch {
	case s.access == AccessMemory:
		s.setDays()
		s.countMetrics()
	case s.access == AccessList: // they are told
	case !isLong(s.mint, s.maxt):
		for i := range s.found {
			s.found[i].Days = s.daysOf(s.found[i].TSUID)
		}
	case len(s.found) > 0:
		present, err := s.presentDays(ctx)
		for _, day := range present {
			s.days[day] = struct{}{}
		}
		return err
	}
	return nil
}

// daysOf are the days on which a series was met, in a range that is not long.
func (s *selection) daysOf(tsuid []byte) (days postings.Days) {
	if s.seen == nil {
		return postings.Days{{First: s.first, Last: s.first}}
	}
	for bits, i := s.active[s.seen[string(tsuid)]], 0; bits>>i != 0; i++ {
		if bits>>i&1 != 0 {
			days = days.With(s.first + mapping.Day(i))
		}
	}
	return days
}

func (s *selection) read(ctx context.Context, src source) error {
	for row, err := range s.r.Store.Scan(ctx, src.scan) {
		if err != nil {
			return err
		}
		start := len(s.page)
		if s.page, err = src.tsuidOf(s.page, row.Key); err != nil {
			// A row that is none of a series (a global annotation, a foreign key) is not found by any selector.
			s.page = s.page[:start]
			continue
		}
		if src.dayOf != nil {
			s.days[src.dayOf(row.Key)] = struct{}{}
		}
		if src.repeats && s.once {
			if s.seen == nil {
				s.seen = make(map[string]int)
			}
			at, ok := s.seen[string(s.page[start:])]
			if !ok {
				at = len(s.active)
				s.seen[string(s.page[start:])] = at
				s.active = append(s.active, 0)
				if err := s.take(seenBytes + len(s.page) - start); err != nil {
					return err
				}
			}
			if src.dayOf != nil {
				s.active[at] |= 1 << (src.dayOf(row.Key) - s.first) // of no use where the range is long
			}
			if ok {
				s.page = s.page[:start]
				continue
			}
		}
		s.candidates++
		if metric := s.page[start:]; len(metric) >= s.r.Settings.Schema.MetricWidth {
			u, _ := s.r.Settings.Schema.ParseUID(mapping.Metric, metric[:s.r.Settings.Schema.MetricWidth])
			s.metrics[u]++
		}
		s.ends = append(s.ends, len(s.page))
		if len(s.ends) == s.pageSize {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush compares the TSUIDs of the page and hands on those that match.
func (s *selection) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // what is in memory is read without it
		return err
	}
	matched, err := s.p.match(ctx, s.page, s.ends)
	switch {
	case err != nil:
	case s.access == AccessList:
		err = s.addPending(ctx, matched)
	default:
		err = s.each(ctx, matched, nil)
	}
	s.page, s.ends = s.page[:0], s.ends[:0]
	s.pageSize = min(pageSize, 2*s.pageSize)
	return err
}

// admit resolves series that match.
func (s *selection) admit(ctx context.Context, matched [][]byte, days []postings.Days) error {
	most, enough := s.limits.Series, s.limits.Enough
	if most > 0 && len(s.found)+len(matched) > most && (enough == 0 || enough > most) {
		return ErrTooMany
	}
	found, err := s.r.resolve(ctx, matched)
	if err != nil {
		return err
	}
	at := 0
	for _, f := range found {
		if days != nil {
			for !bytes.Equal(matched[at], f.TSUID) {
				at++
			}
			f.Days = days[at]
		}
		// The matchers themselves have the last word.
		if s.p.matchesLabels(f.Labels) {
			s.found = append(s.found, f)
			if err := s.take(foundBytes + len(f.TSUID) + int(f.Labels.ByteSize())); err != nil {
				return err
			}
		}
	}
	if enough > 0 && s.distinct(enough) {
		return errEnough
	}
	return nil
}

// distinct says whether the series found have so many label sets.
func (s *selection) distinct(n int) bool {
	if len(s.found) < n {
		return false
	}
	s.sort()
	for i := 1; i < len(s.found); i++ {
		if labels.Equal(s.found[i-1].Labels, s.found[i].Labels) {
			n++
		}
	}
	return len(s.found) >= n
}

func (s *selection) sort() {
	slices.SortFunc(s.found, func(a, b Series) int {
		if c := labels.Compare(a.Labels, b.Labels); c != 0 {
			return c
		}
		return bytes.Compare(a.TSUID, b.TSUID)
	})
}

// take counts memory.
func (s *selection) take(bytes int) error {
	if s.bytes += int64(bytes); s.limits.Take == nil {
		return nil
	}
	return s.limits.Take(int64(bytes))
}
