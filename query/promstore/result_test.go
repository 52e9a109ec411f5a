package promstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
)

// What the engine makes of the series is taken from the account before, and is not many times more than it makes.
func TestEngine_PointsAreTakenFromTheAccount(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	const series = 100
	for n := range series {
		ls := labels.FromStrings("__name__", "m", "n", fmt.Sprint(n))
		write(t, db, ls, sample{engineStart, 1}, sample{engineStart + 240_000, 2})
	}
	const (
		page    = 1 << 20 // and more, that reading takes
		seconds = 500     // for which the samples count
	)
	engine := promstore.Engine{QueryEngine: newEngine(t)}
	for _, c := range []struct {
		text   string
		end    int // in seconds
		step   time.Duration
		points int // of a series, at least, about
	}{
		{"m", seconds, 50 * time.Millisecond, seconds * 20},
		{"-m", seconds, 50 * time.Millisecond, seconds * 20},
		{"m @ end()", 240, 25 * time.Millisecond, 240 * 40},
		{"sum(rate(m[10m]))", seconds, 50 * time.Millisecond, seconds * 20},
		{"max_over_time(m[8m:50ms])", 480, 0, 480 * 20},
		{"m", 86_400, 10 * time.Second, 0}, // there are no points where there are no samples
		{"max_over_time(m[1d:10s])", 86_400, 0, 0},
	} {
		execute := func(bytes int64) error {
			start, end := time.UnixMilli(engineStart), time.UnixMilli(engineStart+int64(c.end)*1000)
			q, err := engine.NewInstantQuery(t.Context(), db, promql.NewPrometheusQueryOpts(false, 0), c.text, end)
			if c.step > 0 {
				q, err = engine.NewRangeQuery(t.Context(), db, promql.NewPrometheusQueryOpts(false, 0), c.text, start, end, c.step)
			}
			if err != nil {
				t.Fatalf("%s: %v", c.text, err)
			}
			defer q.Close()
			return q.Exec(withAccount(t, bytes)).Err
		}
		least := int64(series * c.points * 16)
		if err := execute(least); c.points > 0 && (!errors.Is(err, budget.ErrTooLarge) ||
			!strings.Contains(err.Error(), "--query.max-memory-bytes")) {
			t.Errorf("%s with a step of %v: within %d bytes, of which the points alone are: %v", c.text, c.step, least, err)
		}
		if err := execute(3*least + 4*page); err != nil {
			t.Errorf("%s with a step of %v: %v", c.text, c.step, err)
		}
	}
}

// So is what a function over a range makes of a window: several times its samples, for one series at a time.
func TestEngine_WindowsAreTakenFromTheAccount(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	const samples = 8_000
	for n := range 2 {
		var written []sample
		for i := range int64(samples) {
			written = append(written, sample{engineStart + i*100, 1})
		}
		write(t, db, labels.FromStrings("__name__", "m", "n", fmt.Sprint(n)), written...)
	}
	engine := promstore.Engine{QueryEngine: newEngine(t)}
	end := time.UnixMilli(engineStart + samples*100)
	least := func(text string) (bytes int64) { // with which it is answered
		for bytes = 256 << 10; ; bytes += 128 << 10 {
			q, err := engine.NewRangeQuery(t.Context(), db, promql.NewPrometheusQueryOpts(false, 0), text, end,
				end.Add(time.Second), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			err = q.Exec(withAccount(t, bytes)).Err
			q.Close()
			if err == nil {
				return bytes
			}
			if !errors.Is(err, budget.ErrTooLarge) {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	small := least("max_over_time(m[10s])")
	for _, text := range []string{"max_over_time(m[1h])", "sum(rate(m[1h]))", "max_over_time(m[1h] @ end())"} {
		if large := least(text); large < small+64*samples || large > small+2*112*samples {
			t.Errorf("%s takes %d bytes, with windows of 10 s it takes %d", text, large, small)
		}
	}
}
