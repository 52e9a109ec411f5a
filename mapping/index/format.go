package index

import (
	"fmt"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/feed"
)

// FormatKey writes the key of an index row of promtsd's own table for people; ok is false for any other row. series
// says what a TSUID is called.
//
//	active on 2026-11-22: up{instance="a"}
//	change 17 of the index, by 0123456789abcdef
func FormatKey(row []byte, series func(tsuid []byte) string) (text string, ok bool) {
	switch {
	case len(row) > dayRowPrefix && row[0] == dayPrefix:
		day := time.UnixMilli(int64(parseDay(row)) * mapping.DayMs).UTC().Format(time.DateOnly)
		return fmt.Sprintf("active on %s: %s", day, series(row[dayRowPrefix:])), true
	default:
		return feed.FormatKey(row)
	}
}
