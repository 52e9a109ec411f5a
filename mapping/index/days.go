package index

import (
	"context"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// DaysBefore is the rows of promtsd's own table that say which series were active on the days before a day.
func DaysBefore(day mapping.Day) store.Range {
	return store.Range{Start: appendDay(nil, 0), Stop: appendDay(nil, day)}
}

// ListDays lists the days, up to one, on which any series was active, in order. It reads a row of each.
func ListDays(ctx context.Context, st store.Store, tables catalog.Tables, last mapping.Day) (
	days []mapping.Day, err error,
) {
	stop := store.PrefixEnd(appendDay(nil, last))
	for next := appendDay(nil, 0); next != nil; {
		scan := store.Scan{Table: tables.System, Limit: 1, Ranges: []store.Range{{Start: next, Stop: stop}}}
		next = nil
		for row, err := range st.Scan(ctx, scan) {
			if err != nil {
				return nil, fmt.Errorf("list the days of the index: %w", err)
			}
			days = append(days, parseDay(row.Key))
			if prefix := appendDay(nil, days[len(days)-1]); days[len(days)-1] < last {
				next = store.PrefixEnd(prefix)
			}
		}
	}
	return days, nil
}
