package query

import (
	"sort"

	"github.com/promtsd/promtsd/mapping"
)

// A query is read block by block. A block is either many neighbouring groups, in the order of their labels, over all
// hours, or one group over a part of its hours. So the memory of a query is bounded by its blocks, whatever is asked,
// and series come out in the order of their labels.

// extent says which part of the answer a block is.
type extent struct {
	from, to   int // groups[from:to]
	begin, end int // hours[begin:end]
}

// extentOf returns the extent that begins where e does and has about so many rows, at least one.
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

// after returns the beginning of what follows an extent; ok is false at the end.
func (s *set) after(e extent) (next extent, ok bool) {
	if e.end < len(s.hours) {
		return extent{from: e.from, begin: e.end}, true
	}
	return extent{from: e.to}, e.to < len(s.groups)
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
