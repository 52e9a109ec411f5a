package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

// The module's handlers answer 422, "execution", to most errors of what they ask. Those that may pass are noted on
// their way, and answered here instead: 503, so that clients ask again, with the type that Prometheus has for it.

// statusCanceled is Prometheus's status where the client has left.
const statusCanceled = 499

// failureOf is the answer to an error; ok says whether the error may pass.
func failureOf(err error) (code int, errorType string, ok bool) {
	var timeout promql.ErrQueryTimeout
	switch {
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, "timeout", true
	case errors.Is(err, budget.ErrBusy), errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed):
		return http.StatusServiceUnavailable, "unavailable", true
	case errors.Is(err, context.Canceled):
		return statusCanceled, "canceled", false
	}
	return http.StatusUnprocessableEntity, "execution", false
}

// respondError answers as the module does when it cannot execute a query.
func respondError(w http.ResponseWriter, err error) {
	code, errorType, _ := failureOf(err)
	respond(w, code, v1.Response{Status: "error", ErrorType: errorType, Error: err.Error()})
}

// failureKey is the key of an *error in the context of a request: the last one noted.
type failureKey struct{}

// note notes an error, and returns it.
func note(ctx context.Context, err error) error {
	if noted, ok := ctx.Value(failureKey{}).(*error); ok && err != nil {
		*noted = err
	}
	return err
}

// withFailures serves what serve does, but answers the errors that were noted and may pass.
func withFailures(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var noted error
		serve(&failureWriter{ResponseWriter: w, noted: &noted},
			r.WithContext(context.WithValue(r.Context(), failureKey{}, &noted)))
	}
}

// failureWriter answers in place of a handler that would answer an error.
type failureWriter struct {
	http.ResponseWriter
	noted    *error
	answered bool
}

func (w *failureWriter) WriteHeader(code int) {
	_, _, mayPass := failureOf(*w.noted)
	if code < http.StatusBadRequest || !mayPass {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.answered = true
	w.Header().Del("Content-Encoding")
	respondError(w.ResponseWriter, *w.noted)
}

func (w *failureWriter) Write(p []byte) (int, error) {
	if w.answered {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// notingQueryable notes the errors of what the module's handlers ask themselves; those of queries are noted by
// boundedQuery.
type notingQueryable struct {
	storage.SampleAndChunkQueryable
}

func (n notingQueryable) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := n.SampleAndChunkQueryable.Querier(mint, maxt)
	return notingQuerier{q}, err
}

type notingQuerier struct{ storage.Querier }

func (n notingQuerier) LabelNames(
	ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	names, warnings, err := n.Querier.LabelNames(ctx, hints, ms...)
	return names, warnings, note(ctx, err)
}

func (n notingQuerier) LabelValues(
	ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	values, warnings, err := n.Querier.LabelValues(ctx, name, hints, ms...)
	return values, warnings, note(ctx, err)
}

func (n notingQuerier) Select(
	ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher,
) storage.SeriesSet {
	return notingSet{n.Querier.Select(ctx, sorted, hints, ms...), ctx}
}

type notingSet struct {
	storage.SeriesSet
	ctx context.Context
}

func (n notingSet) Err() error { return note(n.ctx, n.SeriesSet.Err()) }

// notingExemplars does the same for exemplars.
type notingExemplars struct{ storage.ExemplarQueryable }

func (n notingExemplars) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	q, err := n.ExemplarQueryable.ExemplarQuerier(ctx)
	return notingExemplarQuerier{q, ctx}, note(ctx, err)
}

type notingExemplarQuerier struct {
	storage.ExemplarQuerier
	ctx context.Context
}

func (n notingExemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	found, err := n.ExemplarQuerier.Select(start, end, matchers...)
	return found, note(n.ctx, err)
}
