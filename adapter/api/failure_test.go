package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/store"
)

// failing is a Queryable whose Selects fail.
type failing struct{ err error }

func (f failing) SelectWindows(
	context.Context, int64, int64, *query.Windows, []*labels.Matcher,
) (query.SeriesSet, error) {
	return nil, f.err
}

func (f failing) Series(context.Context, int64, int64, int, []*labels.Matcher) (query.SeriesSet, error) {
	return nil, f.err
}

func (f failing) LabelNames(context.Context, int64, int64, int, []*labels.Matcher) ([]string, error) {
	return nil, f.err
}

func (f failing) LabelValues(context.Context, string, int64, int64, int, []*labels.Matcher) ([]string, error) {
	return nil, f.err
}

func (f failing) Cardinality(context.Context, int64, int64, int) (query.Cardinality, error) {
	return query.Cardinality{}, f.err
}

func (f failing) Exemplars(context.Context, int64, int64, ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return nil, f.err
}

func (f failing) Metadata(context.Context, string, int, func(string, metadata.Metadata) error) error {
	return f.err
}

func TestHandler_TellsWhatMayPassFromWhatMayNot(t *testing.T) {
	for _, c := range []struct {
		err       error
		want      int
		errorType string
	}{
		{fmt.Errorf("read: %w", store.ErrUnavailable), http.StatusServiceUnavailable, "unavailable"},
		{store.ErrClosed, http.StatusServiceUnavailable, "unavailable"},
		{fmt.Errorf("read: %w", budget.ErrBusy), http.StatusServiceUnavailable, "unavailable"},
		{budget.ErrTooLarge, http.StatusUnprocessableEntity, "execution"},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, "timeout"},
		{query.ErrLimit, http.StatusUnprocessableEntity, "execution"},
		{store.ErrCorrupt, http.StatusUnprocessableEntity, "execution"},
	} {
		h := newHandler(t, func(config *api.Config) {
			config.Queryable = promstore.New(promstore.Config{Querier: failing{c.err}})
			config.Exemplars = promstore.ExemplarQueryable{Source: failing{c.err}}
			config.Metadata, config.Cardinality = failing{c.err}, failing{c.err}
		})
		for _, path := range []string{
			"query?query=up", "query_range?query=up&start=0&end=1&step=1", "series?match[]=up", "series?match[]=up&match[]=a",
			"labels",
			"labels?match[]=up&match[]=a", "label/a/values", "label/a/values?match[]=up&match[]=a", "status/tsdb",
			"query_exemplars?query=up", "metadata", "metadata?metric=up", "targets/metadata",
		} {
			got := do(h, "GET", "/api/v1/"+path, "")
			text := c.err.Error()
			if c.err == context.DeadlineExceeded && strings.Contains(path, "?query=") && !strings.HasPrefix(path, "query_ex") {
				text = `"error":"query timed out in query execution"`
			}
			if got.Code != c.want || !strings.Contains(got.Body.String(), text) ||
				!strings.Contains(got.Body.String(), `"errorType":"`+c.errorType+`"`) {
				t.Errorf("%v, %s: got %d %s, want %d %s", c.err, path, got.Code, got.Body, c.want, c.errorType)
			}
		}
	}
}

// Whatever is asked ends when its time is over, also where the answer is compressed.
func TestHandler_EndsWhateverLastsTooLong(t *testing.T) {
	h := newHandler(t, func(c *api.Config) {
		c.Timeout = 10 * time.Millisecond
		c.Queryable, c.Cardinality = promstore.New(promstore.Config{Querier: hanging{}}), hanging{}
	})
	for _, path := range []string{
		"/api/v1/query?query=up", "/api/v1/series?match[]=up", "/api/v1/labels", "/api/v1/label/a/values",
		"/api/v1/status/tsdb",
		"/federate?match[]=up",
	} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		if path[1] == 'f' {
			h.Federate(w, r)
		} else if h.ServeHTTP(w, r); !strings.Contains(w.Body.String(), `"errorType":"timeout"`) {
			t.Errorf("%s: got %q", path, w.Body)
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: got %d %v", path, w.Code, w.Header())
		}
	}
}

// hanging is a Querier of which nothing ends before its context.
type hanging struct{}

func (hanging) SelectWindows(
	ctx context.Context, _, _ int64, _ *query.Windows, _ []*labels.Matcher,
) (query.SeriesSet, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Series(ctx context.Context, _, _ int64, _ int, _ []*labels.Matcher) (query.SeriesSet, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) LabelNames(ctx context.Context, _, _ int64, _ int, _ []*labels.Matcher) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) LabelValues(ctx context.Context, _ string, _, _ int64, _ int, _ []*labels.Matcher) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Cardinality(ctx context.Context, _, _ int64, _ int) (query.Cardinality, error) {
	<-ctx.Done()
	return query.Cardinality{}, ctx.Err()
}
