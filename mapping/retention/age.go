package retention

import (
	"context"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
)

const (
	dayMs = 24 * mapping.HourMs

	// maxGap is what a time without samples counts for at most. Samples once a week are as old as the calendar says.
	maxGap = 7 * dayMs
)

// Before is the time before which samples have been kept for long enough, in milliseconds since 1970; 0: none have.
//
// A machine may start with a clock that is years ahead, and a sample may claim any time: a rule that takes the word of
// either deletes everything, for good. So the age of samples is measured along the samples that are there. It counts
// from the newest day that has any, or from now, whatever is earlier; so a sample from the future makes nothing older,
// and a clock that is ahead nothing older than the newest sample says. And on the way back a time without samples
// counts for a week at most: should clock and samples agree that it is years later, as they do where the sender runs on
// the same machine, then what is there gets older by a week, and after that only as fast as newer samples come. The
// price is that after a pause of more than a week old samples stay for longer than asked, by what the pause was longer.
//
// Which days have samples is what the series index says. A store whose index has no days drops nothing.
func Before(ctx context.Context, st store.Store, s catalog.Settings, now int64, keep time.Duration) (int64, error) {
	if now <= 0 {
		return 0, nil
	}
	now = min(now, mapping.MaxTime)
	days, err := index.ListDays(ctx, st, s.Tables, mapping.DayOf(now))
	if err != nil || len(days) == 0 {
		return 0, err
	}
	newest := int64(days[len(days)-1]) * dayMs
	before := newest
	if now < newest+dayMs {
		before = now // today has samples
	}
	before -= keep.Milliseconds()
	for i := len(days) - 1; i > 0; i-- {
		begin, end := int64(days[i])*dayMs, (int64(days[i-1])+1)*dayMs
		if begin <= before {
			break // and so are all gaps before it
		}
		before -= max(begin-end-maxGap, 0)
	}
	return max(before, 0), nil
}
