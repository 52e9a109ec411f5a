package postings

import (
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// DayRun is the days from First to Last, both included.
type DayRun struct{ First, Last mapping.Day }

// Days are some days, as runs that ascend and do not touch one another. nil stands for any day: it is not known which.
type Days []DayRun

// Has says whether a day is, or may be, one of them.
func (d Days) Has(day mapping.Day) bool { return d == nil || d.overlap(DayRun{day, day}) }

func (d Days) overlap(r DayRun) bool {
	i := d.search(r.First)
	return i < len(d) && d[i].First <= r.Last
}

// search is the position of the first run that does not end before a day.
func (d Days) search(day mapping.Day) int {
	i, _ := slices.BinarySearchFunc(d, day, func(r DayRun, day mapping.Day) int { return int(r.Last) - int(day) })
	return i
}

// With returns the days and one more. It may reuse the memory of d.
func (d Days) With(day mapping.Day) Days {
	i := d.search(day)
	if i < len(d) && d[i].First <= day {
		return d
	}
	follows := i > 0 && int(d[i-1].Last)+1 == int(day)
	precedes := i < len(d) && int(day)+1 == int(d[i].First)
	switch {
	case follows && precedes:
		d[i-1].Last = d[i].Last
		return slices.Delete(d, i, i+1)
	case follows:
		d[i-1].Last = day
	case precedes:
		d[i].First = day
	default:
		return slices.Insert(d, i, DayRun{day, day})
	}
	return d
}
