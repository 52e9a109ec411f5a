package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
)

// lasting is a Querier of nothing. Queries of the metric "large" take some memory, and then last until they may end.
type lasting struct {
	failing
	tried  *atomic.Int32 // that began
	have   *atomic.Int32 // that have their memory
	mayEnd chan struct{}
}

func (l lasting) SelectWindows(
	ctx context.Context, _, _ int64, _ *query.Windows, ms []*labels.Matcher,
) (query.SeriesSet, error) {
	if ms[len(ms)-1].Value == "large" {
		l.tried.Add(1)
		if err := budget.From(ctx).Take(ctx, 2<<20); err != nil {
			return nil, err
		}
		l.have.Add(1)
		select {
		case <-l.mayEnd:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return emptySet{}, nil
}

type emptySet struct{ query.SeriesSet }

func (emptySet) Next() bool        { return false }
func (emptySet) Err() error        { return nil }
func (emptySet) Warnings() []error { return nil }
func (emptySet) Close()            {}

// Large queries run as far as there are places for them, wait without any place or memory, and are all answered; small
// ones are answered meanwhile. Those of one client leave places to large ones of others.
func TestHandler_AnswersSmallQueriesWhileLargeOnesRun(t *testing.T) {
	large := min(15, max(4, 2*runtime.GOMAXPROCS(0)))
	t.Run("of many clients", func(t *testing.T) {
		testLargeQueries(t, func(i int) string { return fmt.Sprint(i) },
			large)
	})
	t.Run("of one client", func(t *testing.T) { testLargeQueries(t, func(int) string { return "" }, large*3/4) })
}

// testLargeQueries asks large queries, each as a client, of which so many run.
func testLargeQueries(t *testing.T, client func(i int) string, running int) {
	source := lasting{tried: new(atomic.Int32), have: new(atomic.Int32), mayEnd: make(chan struct{})}
	h := newHandler(t, func(c *api.Config) {
		c.Queryable, c.MaxConcurrency = promstore.New(promstore.Config{Querier: source}), 20
	})
	b, err := budget.New(budget.Config{Total: 128 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(client, query string) *httptest.ResponseRecorder {
		account := b.Open()
		defer account.Close()
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(request.WithSender(budget.NewContext(t.Context(), account), client), "GET",
			"/api/v1/query?"+query, nil)
		h.ServeHTTP(w, r)
		return w
	}
	var wg sync.WaitGroup
	codes := make(chan int, 40)
	for i := range 40 {
		wg.Go(func() { codes <- ask(client(i), fmt.Sprintf("query=large&time=%d", i)).Code })
	}
	for last := int32(-1); source.tried.Load() != last; time.Sleep(200 * time.Millisecond) {
		last = source.tried.Load() // until all wait for something
	}
	if got := ask("", "query=small&timeout=10s"); got.Code != http.StatusOK {
		t.Errorf("a small query: got %d %s", got.Code, got.Body)
	}
	if have, held := source.have.Load(), b.Held(); int(have) != running || held != int64(running)*2<<20 {
		t.Errorf("%d large ones run, and all hold %d bytes, want %d with 2 MiB each", have, held, running)
	}
	close(source.mayEnd)
	wg.Wait()
	close(codes)
	for code := range codes {
		if code != http.StatusOK {
			t.Errorf("a large query: got %d", code)
		}
	}
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// Calls for labels that last leave processors to others: some run, the others wait, and end with their clients.
func TestHandler_BoundsCallsAtATime(t *testing.T) {
	source := &slowLabels{began: make(chan struct{}, 100), mayEnd: make(chan struct{})}
	h := newHandler(t, func(c *api.Config) { c.Queryable = promstore.New(promstore.Config{Querier: source}) })
	ask := func(ctx context.Context, client string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(request.WithSender(ctx, client), "GET", "/api/v1/label/a/values", nil))
		return w.Code
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if code := ask(t.Context(), fmt.Sprint(i)); code != http.StatusOK {
				t.Errorf("got %d", code)
			}
		})
	}
	most := max(4, 2*runtime.GOMAXPROCS(0))
	for range most {
		<-source.began
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ask(gone, "gone")
	time.Sleep(20 * time.Millisecond)
	if more := len(source.began); more > 0 {
		t.Errorf("%d calls run beyond the %d", more, most)
	}
	close(source.mayEnd)
	wg.Wait()
}

type slowLabels struct {
	failing
	began, mayEnd chan struct{}
}

func (s *slowLabels) LabelValues(context.Context, string, int64, int64, int, []*labels.Matcher) ([]string, error) {
	s.began <- struct{}{}
	<-s.mayEnd
	return nil, nil
}
