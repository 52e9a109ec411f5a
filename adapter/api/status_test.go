package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/query"
)

// counting counts how often somebody counts series.
type counting struct{ times atomic.Int32 }

func (c *counting) Cardinality(_ context.Context, _, _ int64, most int) (counted query.Cardinality, _ error) {
	c.times.Add(1)
	for i := range most {
		counted.SeriesByMetric = append(counted.SeriesByMetric, query.Count{Name: fmt.Sprint("m", i), N: 1})
	}
	return counted, nil
}

// Many who ask for status/tsdb have the series counted once in half a minute.
func TestHandler_CountsSeriesOnceForMany(t *testing.T) {
	source, now := new(counting), clock
	h := newHandler(t, func(c *api.Config) { c.Cardinality, c.Now = source, func() time.Time { return now } })
	ask := func(limit, times int) {
		t.Helper()
		got := do(h, "GET", fmt.Sprintf("/api/v1/status/tsdb?limit=%d", limit), "")
		if n := strings.Count(got.Body.String(), `{"name":"m`); got.Code != http.StatusOK || n != limit {
			t.Errorf("got %d with %d metrics, want %d", got.Code, n, limit)
		}
		if n := int(source.times.Load()); n != times {
			t.Errorf("counted %d times, want %d", n, times)
		}
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { ask(10, 1) })
	}
	wg.Wait()
	ask(3, 1)
	ask(11, 2)
	ask(10, 2)
	now = now.Add(time.Minute)
	ask(10, 3)
	ask(9_000, 4) // too large to be kept
	ask(9_000, 5)
	ask(10, 5)
}
