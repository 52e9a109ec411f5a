package index

import (
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// DayRun is the days from one to another, both included.
type DayRun struct{ First, Last mapping.Day }

// Days are some days, as runs that ascend and do not touch one another. None at all, nil, stands for any day: it is not
// known which.
type Days []DayRun

// Has says whether a day is, or may be, one of them.
func (d Days) Has(day mapping.Day) bool { return d == nil || d.overlap(day, day) }

func (d Days) overlap(first, last mapping.Day) bool {
	i, _ := slices.BinarySearchFunc(d, first, func(r DayRun, day mapping.Day) int { return int(r.Last) - int(day) })
	return i < len(d) && d[i].First <= last
}

// withDay returns runs that have a day besides.
func withDay(runs []DayRun, day mapping.Day) []DayRun {
	i, _ := slices.BinarySearchFunc(runs, day, func(r DayRun, day mapping.Day) int { return int(r.Last) - int(day) })
	if i < len(runs) && runs[i].First <= day {
		return runs
	}
	follows := i > 0 && int(runs[i-1].Last)+1 == int(day)
	precedes := i < len(runs) && int(day)+1 == int(runs[i].First)
	switch {
	case follows && precedes:
		runs[i-1].Last = runs[i].Last
		return slices.Delete(runs, i, i+1)
	case follows:
		runs[i-1].Last = day
	case precedes:
		runs[i].First = day
	default:
		return slices.Insert(runs, i, DayRun{day, day})
	}
	return runs
}
