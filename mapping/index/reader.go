package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// wide has an entry for each selection that reads the store for very many metrics, as memory lacks some.
	wide chan struct{}
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
		s.pendingMax = maxPending
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
