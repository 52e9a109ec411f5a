package mapping

import "fmt"

// A data row holds one hour of one series. Its row key has the hour's first second, the base time, on 4 unsigned bytes;
// its qualifiers have what a point's time is beyond it.

// HourMs is the span of a data row in milliseconds.
const HourMs = 3600_000

// MaxTime is the last millisecond whose base time fits into 4 bytes: 2106-02-07T06:59:59.999Z.
const MaxTime int64 = (maxBase+3600)*1000 - 1

const maxBase = (1<<32 - 1) / 3600 * 3600

// BaseTime is the base time of the row that holds time ms, in seconds. ms must be 0 to MaxTime, as CheckTime tells.
func BaseTime(ms int64) uint32 { return uint32(ms / HourMs * 3600) }

// CheckTime refuses, as ErrInvalid, a time in milliseconds that no data row can hold.
func CheckTime(ms int64) error {
	if ms < 0 || ms > MaxTime {
		return fmt.Errorf("%w: timestamp %d ms is outside 0 to %d, the years 1970 to 2106 that a row key can hold",
			ErrInvalid, ms, MaxTime)
	}
	return nil
}

// DayMs is the span of a Day in milliseconds.
const DayMs = 24 * HourMs

// Day is a number of days since 1970, in UTC: the series index counts in them.
type Day uint16

// DayOf is the day of a time in milliseconds, 0..MaxTime.
func DayOf(ms int64) Day { return Day(ms / DayMs) }
