package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// ErrTooMany is returned when more series match than were allowed.
var ErrTooMany = errors.New("too many series")

// Config is what a Reader needs.
type Config struct {
	Store    store.Store
	Settings catalog.Settings
	UIDs     *uid.Registry
}

// Reader finds series. It is safe for concurrent use.
type Reader struct {
	Config
}

// NewReader returns a Reader.
func NewReader(c Config) *Reader { return &Reader{c} }

// Series is one series of the index. A TSUID stands for exactly one label set; rarely, two TSUIDs stand for the same
// one (a name that OpenTSDB wrote in ISO-8859-1 and promtsd in UTF-8), and then both are listed, one after the other.
type Series struct {
	TSUID  []byte
	Labels labels.Labels
}

// Result is the answer to a Select.
type Result struct {
	Series []Series // sorted by labels, then TSUID
	// Hours are the base times inside the range at which the series may have samples, ascending: those of the days on
	// which any candidate was active.
	Hours []uint32
	// Candidates is the number of index entries looked at: the series of the metrics asked for, before their tags were
	// compared.
	Candidates int
}

// pageSize is how many TSUIDs are compared at a time: the texts that the comparison needs are then read together.
const pageSize = 4096

// Select returns the series that match all matchers and may have samples from mint to maxt, inclusive, in
// milliseconds. A label that a series lacks counts as empty. More than limit series (0: no limit) are ErrTooMany.
func (r *Reader) Select(ctx context.Context, mint, maxt int64, limit int, matchers ...*labels.Matcher) (Result, error) {
	mint, maxt = max(mint, 0), min(maxt, mapping.MaxTime)
	if mint > maxt {
		return Result{}, nil
	}
	p, err := r.newPredicate(ctx, matchers)
	if err != nil || p == nil {
		return Result{}, err
	}
	s := &selection{r: r, p: p, limit: limit, days: make(map[Day]struct{})}
	if err := s.all(ctx, mint, maxt); err != nil {
		return Result{}, fmt.Errorf("read series index: %w", err)
	}
	slices.SortFunc(s.found, func(a, b Series) int {
		if c := labels.Compare(a.Labels, b.Labels); c != 0 {
			return c
		}
		return bytes.Compare(a.TSUID, b.TSUID)
	})
	result := Result{Series: s.found, Candidates: s.candidates}
	if len(s.found) > 0 {
		result.Hours = hoursOf(s.days, mint, maxt)
	}
	return result, nil
}

// hoursOf lists the base times of some days that lie between two times.
func hoursOf(days map[Day]struct{}, mint, maxt int64) []uint32 {
	first, last := mapping.BaseTime(mint), mapping.BaseTime(maxt)
	var out []uint32
	for _, day := range slices.Sorted(maps.Keys(days)) {
		start := int64(day) * dayMs / 1000
		for base := start; base < start+dayMs/1000; base += mapping.HourMs / 1000 {
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
	dayOf   func(row []byte) Day // nil: its rows are of no day
	// repeats says that a TSUID may come up in more than one row of the sources.
	repeats bool
}

func (r *Reader) scans(mint, maxt int64, p *predicate) []source {
	if !r.Settings.IndexComplete {
		return r.rowKeyScans(mint, maxt, p)
	}
	first, last := DayOf(mint), DayOf(maxt)
	if isLong(mint, maxt) {
		return []source{{
			scan: store.Scan{
				Table: r.Settings.Tables.Meta, Ranges: p.metricRanges(nil),
				Columns: []store.Column{{Family: catalog.FamilyName, Qualifier: counterQualifier}},
			},
			tsuidOf: func(dst, row []byte) ([]byte, error) { return append(dst, row...), nil },
		}}
	}
	var out []source
	for day := int(first); day <= int(last); day++ {
		prefix := appendDay(nil, Day(day))
		out = append(out, source{
			scan:    store.Scan{Table: r.Settings.Tables.Own, Ranges: p.metricRanges(prefix)},
			tsuidOf: func(dst, row []byte) ([]byte, error) { return append(dst, row[len(prefix):]...), nil },
			dayOf:   func([]byte) Day { return Day(day) },
			repeats: first != last,
		})
	}
	return out
}

// isLong says that a range is answered from the list of all series.
func isLong(mint, maxt int64) bool { return int(DayOf(maxt))-int(DayOf(mint)) >= maxDays }

// selection gathers TSUIDs into pages and keeps those that match.
type selection struct {
	r          *Reader
	p          *predicate
	limit      int
	seen       map[string]struct{} // TSUIDs met, where the sources may repeat them
	page       []byte              // TSUIDs end to end
	ends       []int               // where each of the page ends
	days       map[Day]struct{}    // on which a candidate was active
	candidates int
	found      []Series
}

// all runs every source, and finds the days where the sources do not tell them.
func (s *selection) all(ctx context.Context, mint, maxt int64) error {
	for _, src := range s.r.scans(mint, maxt, s.p) {
		if err := s.run(ctx, src); err != nil {
			return err
		}
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	if !s.r.Settings.IndexComplete || !isLong(mint, maxt) || len(s.found) == 0 {
		return nil
	}
	return s.findDays(ctx, DayOf(mint), DayOf(maxt))
}

// findDays finds the days on which any series was active, jumping from each to the next.
func (s *selection) findDays(ctx context.Context, first, last Day) error {
	for next := int(first); next <= int(last); {
		jump := store.Scan{Table: s.r.Settings.Tables.Own, Limit: 1, Ranges: []store.Range{{
			Start: appendDay(nil, Day(next)), Stop: successor(appendDay(nil, last)),
		}}}
		next = int(last) + 1
		for row, err := range s.r.Store.Scan(ctx, jump) {
			if err != nil {
				return err
			}
			day := parseDay(row.Key)
			s.days[day] = struct{}{}
			next = int(day) + 1
		}
	}
	return nil
}

func (s *selection) run(ctx context.Context, src source) error {
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
		if src.repeats {
			if s.seen == nil {
				s.seen = make(map[string]struct{})
			}
			if _, ok := s.seen[string(s.page[start:])]; ok {
				s.page = s.page[:start]
				continue
			}
			s.seen[string(s.page[start:])] = struct{}{}
		}
		s.candidates++
		s.ends = append(s.ends, len(s.page))
		if len(s.ends) == pageSize {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush compares the TSUIDs of the page and resolves those that match.
func (s *selection) flush(ctx context.Context) error {
	matched, err := s.p.match(ctx, s.page, s.ends)
	if err != nil {
		return err
	}
	if s.limit > 0 && len(s.found)+len(matched) > s.limit {
		return ErrTooMany
	}
	found, err := s.r.resolve(ctx, matched)
	if err != nil {
		return err
	}
	for _, f := range found {
		// The matchers themselves have the last word.
		if s.p.matchesLabels(f.Labels) {
			s.found = append(s.found, f)
		}
	}
	s.page, s.ends = s.page[:0], s.ends[:0]
	return nil
}
