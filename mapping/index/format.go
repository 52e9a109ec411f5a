package index

import (
	"fmt"
	"strings"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/feed"
)

const dayText = "active on "

// FormatKey writes the key of an index row of the system table for people; ok is false for any other row. series writes
// a TSUID: by names, or with mapping.Schema.FormatTSUID for ParseKey.
//
//	active on 2026-11-22: up{instance="a"}
//	change 17 of the index, by 0123456789abcdef
func FormatKey(row []byte, series func(tsuid []byte) string) (text string, ok bool) {
	switch {
	case len(row) > dayRowPrefix && row[0] == dayPrefix:
		day := time.UnixMilli(int64(parseDay(row)) * mapping.DayMs).UTC().Format(time.DateOnly)
		return fmt.Sprintf("%s%s: %s", dayText, day, series(row[dayRowPrefix:])), true
	default:
		return feed.FormatKey(row)
	}
}

// ParseKey reads what FormatKey wrote; series reads a TSUID. The error wraps mapping.ErrInvalid.
func ParseKey(text string, series func(text string) (tsuid []byte, err error)) (row []byte, err error) {
	rest, ok := strings.CutPrefix(text, dayText)
	if !ok {
		return feed.ParseKey(text)
	}
	dateText, seriesText, _ := strings.Cut(rest, ": ")
	date, err := time.Parse(time.DateOnly, dateText)
	day := date.UnixMilli() / mapping.DayMs
	if err != nil || day < 0 || day > 1<<16-1 {
		return nil, fmt.Errorf("%w: key %q of the index: %q is not a day from 1970 to 2149", mapping.ErrInvalid, text,
			dateText)
	}
	tsuid, err := series(seriesText)
	if err != nil {
		return nil, err
	}
	return append(appendDay(nil, mapping.Day(day)), tsuid...), nil
}
