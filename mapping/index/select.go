package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

var (
	// ErrTooMany says that more series match than Limits allow.
	ErrTooMany = errors.New("too many series")

	errEnough = errors.New("enough is found") // ends a selection, and is no error of it
)

// Limits bound what reads the index.
type Limits struct {
	Series int // that match; 0: any number

	// Take is told of memory for what is found, and for what is looked at where that takes memory; below 0 it is given
	// back. Its error ends the reading. nil: there is no bound.
	Take func(bytes int64) error

	// Enough is how many label sets, names or values suffice; 0: all are wanted. The search ends when it has them,
	// whichever they are, so that there may be some more. Series does not matter where it is no less.
	Enough int
}

// What an entry takes besides its TSUID and its labels' texts.
const (
	foundBytes = 144 // in lists of series, and of groups of them
	seenBytes  = 72
)

// Config is what a Reader needs.
type Config struct {
	Store    store.Store
	Settings catalog.Settings
	UIDs     *uid.Registry
	Memory   *Memory // nil: there is none
}

// Reader finds series. It is safe for concurrent use.
type Reader struct {
	Config
	labels labelCache
	wide   chan struct{} // has an entry for each selection that reads the store for very many metrics, as memory lacks some
}

// NewReader returns a Reader.
func NewReader(c Config) *Reader {
	return &Reader{Config: c, wide: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

const (
	// fewMetrics are so few that a selection of theirs need not wait for others.
	fewMetrics = 64
	// wideWait is how long one of more waits at most.
	wideWait = 5 * time.Second
)

// Series is one series of the index. A TSUID stands for exactly one label set; rarely, two TSUIDs stand for the same
// one (a name that OpenTSDB wrote in ISO-8859-1 and promtsd in UTF-8), and then both are listed, one after the other.
type Series struct {
	TSUID  []byte
	Labels labels.Labels
	Days   postings.Days // of the range, on which it was active
}

// AccessPath is where a Select has found its series.
type AccessPath string

// The access paths. RowKeys is taken where the index is not known to be complete, List where the range has too many
// days.
const (
	AccessNone    AccessPath = "names"    // nowhere: a name or a value is unknown
	AccessMemory  AccessPath = "memory"   // the postings in memory
	AccessDays    AccessPath = "days"     // the index rows of the range's days
	AccessList    AccessPath = "list"     // the list of all series; their days in the index rows of the days
	AccessRowKeys AccessPath = "row keys" // the row keys of the data table
)

// Result is the answer to a Select. Where enough was found it tells of the series only, and not on which days they were
// active.
type Result struct {
	Series []Series // sorted by labels, then TSUID
	// Hours are the base times inside the range at which the series may have samples, ascending: those of the days on
	// which any candidate was active.
	Hours []uint32
	// Candidates is the number of index entries looked at: the series that had to be compared tag by tag.
	Candidates int
	AccessPath AccessPath
	// Metrics is about how many series each metric of the series found has, by its UID: among so many rows the rows of
	// those found stand. nil: it is not known.
	Metrics map[mapping.UID]int
	// RowRegexp is a store.RowFilter's regular expression that the data row keys of all series found match; empty if it
	// would say nothing.
	RowRegexp string
	Bytes     int64 // of memory that Limits were told of
}

// pageSize is how many TSUIDs are compared at a time: the texts that the comparison needs are then read together. Where
// few of them are enough it is fewPageSize at first, and doubles.
const (
	pageSize    = 4096
	fewPageSize = 8
)

// Select returns the series that match all matchers and may have samples from mint to maxt, inclusive, in
// milliseconds. A label that a series lacks counts as empty.
func (r *Reader) Select(
	ctx context.Context, mint, maxt int64, limits Limits, matchers ...*labels.Matcher,
) (Result, error) {
	s, err := r.newSelection(ctx, mint, maxt, limits, matchers)
	if err != nil || s == nil {
		return Result{AccessPath: AccessNone}, err
	}
	s.once, s.each = true, s.admit
	if limits.Enough == 0 {
		s.lot = maxPending
	}
	enough, err := s.run(ctx)
	if err == nil && !enough {
		err = s.tellDays(ctx)
	}
	if err != nil {
		return Result{}, fmt.Errorf("read series index: %w", err)
	}
	s.sort()
	result := Result{Series: s.found, Candidates: s.candidates, AccessPath: s.access, Bytes: s.bytes}
	if enough {
		return result, nil
	}
	if s.access != AccessRowKeys { // which has not met those that do not match
		result.Metrics = s.metrics
	}
	if len(s.found) > 0 {
		result.Hours, result.RowRegexp = hoursOf(s.days, s.mint, s.maxt), s.p.rowRegexp()
	}
	return result, nil
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
	s.lot = s.pageSize
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

// hoursOf lists the base times of some days that lie between two times.
func hoursOf(days map[mapping.Day]struct{}, mint, maxt int64) []uint32 {
	first, last := mapping.BaseTime(mint), mapping.BaseTime(maxt)
	var out []uint32
	for _, day := range slices.Sorted(maps.Keys(days)) {
		start := int64(day) * mapping.DayMs / 1000
		for base := start; base < start+mapping.DayMs/1000; base += mapping.HourMs / 1000 {
			if base >= int64(first) && base <= int64(last) {
				out = append(out, uint32(base))
			}
		}
	}
	return out
}

// source is one scan and how to get the TSUID out of its row keys.
type source struct {
	scan    store.Scan
	tsuidOf func(dst, row []byte) ([]byte, error)
	dayOf   func(row []byte) mapping.Day // nil: its rows are of no day
	// repeats says that a TSUID may come up in more than one row of the sources.
	repeats bool
}

func (r *Reader) scans(mint, maxt int64, p *predicate) []source {
	first, last := mapping.DayOf(mint), mapping.DayOf(maxt)
	var out []source
	if !r.Settings.IndexComplete {
		// The rows of the index are read, too: they tell of series whose samples are not in the data table yet.
		out = r.rowKeyScans(mint, maxt, p)
	}
	if isLong(mint, maxt) {
		return append(out, source{
			scan: store.Scan{
				Table: r.Settings.Tables.Meta, Ranges: p.metricRanges(nil),
				Columns: []store.Column{{Family: catalog.FamilyName, Qualifier: counterQualifier}},
			},
			tsuidOf: func(dst, row []byte) ([]byte, error) { return append(dst, row...), nil },
			repeats: len(out) > 0,
		})
	}
	for day := int(first); day <= int(last); day++ {
		prefix := appendDay(nil, mapping.Day(day))
		out = append(out, source{
			scan:    store.Scan{Table: r.Settings.Tables.System, Ranges: p.metricRanges(prefix)},
			tsuidOf: func(dst, row []byte) ([]byte, error) { return append(dst, row[len(prefix):]...), nil },
			dayOf:   func([]byte) mapping.Day { return mapping.Day(day) },
			repeats: len(out) > 0 || first != last,
		})
	}
	return out
}

// isLong says that a range is answered from the list of all series.
func isLong(mint, maxt int64) bool {
	return int(mapping.DayOf(maxt))-int(mapping.DayOf(mint)) >= maxDays
}

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
	lot        int                      // of how many series at a time the days are looked for
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
	return s.settle(ctx)
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
		err = s.wait(ctx, matched)
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
