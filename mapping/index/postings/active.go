package postings

import (
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// setActive notes that a series was active on a day.
func (s *Set) setActive(number uint32, day mapping.Day) {
	span := &s.spans[number]
	days, several := s.days[number]
	switch {
	case several:
	case day >= span.First && day <= span.Last:
		return
	case int(day) == int(span.Last)+1:
		span.Last = day
		return
	case int(day)+1 == int(span.First):
		span.First = day
		return
	default:
		days = Days{*span}
	}
	days = days.With(day)
	*span = DayRun{days[0].First, days[len(days)-1].Last}
	if len(days) > 1 {
		s.days[number] = days
	} else {
		delete(s.days, number)
	}
}

// active says whether a series was active on a day of r.
func (s *Set) active(number uint32, r DayRun) bool {
	span := s.spans[number]
	if span.Last < r.First || span.First > r.Last {
		return false
	}
	if span.First >= r.First || span.Last <= r.Last || len(s.days) == 0 {
		return true // one end of the span is within r, and is a day on which the series was active
	}
	days, several := s.days[number]
	return !several || days.overlap(r)
}

// anyActive says whether a series of a list was active on a day of r.
func (s *Set) anyActive(list []uint32, r DayRun) bool {
	return slices.ContainsFunc(list, func(number uint32) bool { return s.active(number, r) })
}

// AppendActive appends to page the TSUIDs of those candidates, from the one at a position on, that were active on a day
// of r, and to ends where each ends, until there are most ends. next is the position to go on at; it is found.Len() at
// the end.
func (s *Set) AppendActive(page []byte, ends []int, most int, found Candidates, from int, r DayRun) (
	[]byte, []int, int,
) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	next, n := from, found.Len()
	for ; next < n && len(ends) < most; next++ {
		if number := found.at(next); s.active(number, r) {
			page = append(page, s.tsuid(number)...)
			ends = append(ends, len(page))
		}
	}
	return page, ends, next
}

// DaysOf returns the days of r on which each of some series was active; an unknown series was active on none.
func (s *Set) DaysOf(tsuids [][]byte, r DayRun) []Days {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out, slab := make([]Days, len(tsuids)), make(Days, 0, len(tsuids))
	for i, tsuid := range tsuids {
		from := len(slab)
		if n := s.slots[s.slot(tsuid)]; n != 0 {
			slab = s.appendDays(slab, n-1, r)
		}
		out[i] = slab[from:len(slab):len(slab)]
	}
	return out
}

func (s *Set) appendDays(dst Days, number uint32, r DayRun) Days {
	days, several := s.days[number]
	if !several {
		days = s.spans[number : number+1]
	}
	for _, d := range days {
		if d.Last >= r.First && d.First <= r.Last {
			dst = append(dst, DayRun{max(d.First, r.First), min(d.Last, r.Last)})
		}
	}
	return dst
}

// CountOfMetric is how many series of a metric were active on a day of r. If the metric has more series than most, they
// are not looked at, and it is the number of all.
func (s *Set) CountOfMetric(metric mapping.UID, most int, r DayRun) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := s.metrics.series[metric]
	if len(list) > most {
		return len(list)
	}
	return s.countActive(list, r)
}

func (s *Set) countActive(list []uint32, r DayRun) (n int) {
	for _, number := range list {
		if s.active(number, r) {
			n++
		}
	}
	return n
}

// CountByValue is how many series that were active on a day of r have each value of a tagk; 0 stands for the metrics.
// Values without such series are left out.
func (s *Set) CountByValue(key mapping.UID, r DayRun) map[mapping.UID]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := s.tags[key]
	if key == 0 {
		l = &s.metrics
	}
	if l == nil {
		return nil
	}
	counts := make(map[mapping.UID]int, len(l.series))
	for value, list := range l.series {
		if n := s.countActive(list, r); n > 0 {
			counts[value] = n
		}
	}
	return counts
}
