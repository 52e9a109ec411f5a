package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

// maxOTLP is how many OTLP requests are served at a time; others wait. What each is unmarshalled into is bounded before
// (adapter), what its samples become by its appender.
const maxOTLP = 8

// newOTLP is the module's receiver of OTLP metrics, with two changes: the requests at a time are bounded, and the
// status is chosen here if the samples could not be committed. The module (v0.315.0) loses the error of Commit and
// says 200; and OTLP exporters try again after 503, but not after its 500.
func newOTLP(c Config) http.Handler {
	places := fair.NewPlaces(maxOTLP)
	handler := remote.NewOTLPWriteHandler(newSparse(c.Logger), c.Registerer, notingAppendable{c.OTLP}, emptyConfig,
		remote.OTLPOptions{LookbackDelta: c.LookbackDelta})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, r.URL.Path+" takes POST, not "+r.Method, http.StatusMethodNotAllowed)
			return
		}
		client := request.SenderOf(r.Context())
		if places.Enter(r.Context(), client) != nil {
			return // the client has gone
		}
		defer places.Leave(client)
		var commit error
		ctx := context.WithValue(r.Context(), commitKey{}, &commit)
		handler.ServeHTTP(&commitWriter{w, &commit}, r.WithContext(ctx))
	})
}

// commitKey is the key of an *error in the context of an OTLP request: that of Commit. The module's handler hands its
// request's context to the appender.
type commitKey struct{}

// notingAppendable notes the error of each Commit, and of an Append whose request is too large.
type notingAppendable struct{ storage.AppendableV2 }

func (a notingAppendable) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return notingAppender{a.AppendableV2.AppenderV2(ctx), ctx}
}

type notingAppender struct {
	storage.AppenderV2
	ctx context.Context
}

func (a notingAppender) Append(
	ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram,
	opts storage.AppendV2Options,
) (storage.SeriesRef, error) {
	ref, err := a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
	if errors.Is(err, budget.ErrTooLarge) {
		a.note(err)
	}
	return ref, err
}

func (a notingAppender) Commit() error {
	err := a.AppenderV2.Commit()
	a.note(err)
	return err
}

func (a notingAppender) note(err error) {
	if commit, ok := a.ctx.Value(commitKey{}).(*error); ok {
		*commit = err
	}
}

// commitWriter answers for a Commit that failed.
type commitWriter struct {
	http.ResponseWriter
	commit *error
}

func (w *commitWriter) WriteHeader(code int) {
	err := *w.commit
	if err == nil {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	said := code >= 400 // the module writes the error's text itself
	switch {
	case errors.Is(err, storage.ErrOutOfBounds):
		code = http.StatusBadRequest
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, budget.ErrTooLarge):
		code = http.StatusRequestEntityTooLarge
	case errors.Is(err, store.ErrInvalid):
		code = http.StatusBadRequest
	default:
		// Also what somebody has to mend first: after 500 exporters drop the samples.
		w.Header().Set("Retry-After", "5")
		code = http.StatusServiceUnavailable
	}
	if said {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	http.Error(w.ResponseWriter, err.Error(), code)
}
