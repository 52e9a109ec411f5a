package retention_test

import (
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/retention"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// span is the days from one to another, both with samples, every so many.
func span(first, last, every mapping.Day) (days []mapping.Day) {
	for d := first; d <= last; d += every {
		days = append(days, d)
	}
	return days
}

func TestBefore_CountsAlongTheSamples(t *testing.T) {
	const today, years, noon = 20_000, 14 * 365, 12 * time.Hour
	at := func(day int) time.Duration { return time.Duration(day) * 24 * time.Hour }
	for _, c := range []struct {
		name string
		days []mapping.Day
		now  time.Duration // since 1970
		keep time.Duration
		want time.Duration
	}{
		{"all is well", span(19_000, today, 1), at(today) + noon, at(100), at(today-100) + noon},
		{"hours", span(19_000, today, 1), at(today) + noon, 6 * time.Hour, at(today) + 6*time.Hour},
		{"samples once a week", span(17_000, today, 7), at(19_996) + noon, at(100), at(19_896) + noon},
		{"the clock is years ahead", span(19_000, today, 1), at(today + years), at(100), at(today - 100)},
		{"the clock is years behind", span(19_000, today, 1), at(100), at(10), 0},
		{"the clock is at the beginning", span(19_000, today, 1), 0, at(10), 0},
		{"a sample from the future", append(span(19_000, today, 1), today+years), at(today) + noon, at(100),
			at(today-100) + noon},
		{"clock and samples are years ahead", append(span(19_000, today, 1), today+years), at(today+years) + noon, at(100),
			at(today+1-100+7) + noon},
		{"clock and samples were years ahead, and less", append(span(19_000, today, 1), today+years, today+2*years),
			at(today+3*years) + noon, at(100), at(today + 2 - 100 + 14)},
		{"clock and samples are ahead for long", append(span(19_000, today, 1), span(today+years, today+years+99, 1)...),
			at(today+years+99) + noon, at(100), at(today+7) + noon},
		{"a pause", append(span(19_000, today-40, 1), span(today-3, today, 1)...), at(today) + noon, at(20),
			at(today-20-29) + noon},
		{"nothing there", nil, at(today), at(100), 0},
		{"all is younger", span(today-5, today, 1), at(today) + noon, at(100), at(today-100) + noon},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := storetest.NewMem()
			s, _, err := catalog.Init(t.Context(), st, "promtsd", nil)
			if err != nil {
				t.Fatal(err)
			}
			var b store.Batch
			w := index.Writer{Tables: s.Tables}
			for _, day := range c.days {
				w.PutDay(&b, []byte("one"), day, 1, nil)
				w.PutDay(&b, []byte("two"), day, 1, nil)
			}
			if err := st.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			got, err := retention.Before(t.Context(), st, s, c.now.Milliseconds(), c.keep)
			if err != nil || got != c.want.Milliseconds() {
				t.Errorf("got %v, %v, want %v", time.UnixMilli(got).UTC(), err, time.UnixMilli(c.want.Milliseconds()).UTC())
			}
		})
	}
}
