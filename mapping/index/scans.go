package index

import (
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

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
