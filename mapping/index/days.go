package index

import "github.com/promtsd/promtsd/store"

// DaysBefore is the rows of promtsd's own table that say which series were active on the days before a day.
func DaysBefore(day Day) store.Range {
	return store.Range{Start: appendDay(nil, 0), Stop: appendDay(nil, day)}
}
