package adapter

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

// A reply is the status of an answer and a text that says why.
type reply struct {
	code       int
	text       string
	retryAfter time.Duration // 0: not said
	outcome    string        // for the metric, where it is not the code
}

// Outcomes that are no status.
const (
	canceled = "canceled" // the client went away
	aborted  = "aborted"  // the answer broke off
)

// After how long a client is asked to come again.
const (
	retryOverload = time.Second
	retryStore    = 5 * time.Second
)

// label is the value of the metric label code.
func (r reply) label() string {
	if r.outcome != "" {
		return r.outcome
	}
	return strconv.Itoa(r.code)
}

// send writes the reply.
func (r reply) send(w http.ResponseWriter) {
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(r.retryAfter/time.Second)))
	}
	if r.text == "" {
		w.WriteHeader(r.code)
		return
	}
	http.Error(w, r.text, r.code)
}

func badRequest(text string) reply { return reply{code: http.StatusBadRequest, text: text} }

// replyTo chooses the status for an error that is not the client's fault. It is never a success, even if the client is
// thought to be gone.
func replyTo(ctx context.Context, err error) reply {
	switch {
	case ctx.Err() != nil:
		return reply{code: http.StatusServiceUnavailable, text: "the request was canceled: " + err.Error(), outcome: canceled}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed):
		return reply{code: http.StatusServiceUnavailable, text: err.Error(), retryAfter: retryStore}
	default:
		return reply{code: http.StatusInternalServerError, text: err.Error()}
	}
}

// replyToWrite is replyTo for writes, whose senders repeat after 5xx for ever, and send nothing else meanwhile: so what
// repeating can never mend is 4xx. 500 is for what somebody has to mend first, such as a table that is missing.
func replyToWrite(ctx context.Context, err error) reply {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrTooLarge):
		return reply{code: http.StatusRequestEntityTooLarge,
			text: err.Error() + ": send fewer samples at a time (max_samples_per_send of remote_write)"}
	case errors.Is(err, store.ErrInvalid):
		return badRequest("can never be stored: " + err.Error())
	}
	return replyTo(ctx, err)
}

// replyToRead is replyTo for reads, where an error may be about what was asked.
func replyToRead(ctx context.Context, err error) reply {
	for _, theirs := range []error{
		wire.ErrMalformed, wire.ErrTooLarge, bounds.ErrTooComplex, query.ErrLimit, budget.ErrTooLarge, mapping.ErrInvalid,
	} {
		if ctx.Err() == nil && errors.Is(err, theirs) {
			return badRequest(err.Error())
		}
	}
	if ctx.Err() == nil && errors.Is(err, budget.ErrBusy) {
		return reply{code: http.StatusServiceUnavailable, text: err.Error(), retryAfter: retryOverload}
	}
	return replyTo(ctx, err)
}

// refuse answers any request while the handler is not ready, or no longer. nil means go on.
func (h *Handler) refuse(w http.ResponseWriter) *reply {
	if h.draining.Load() {
		w.Header().Set("Connection", "close")
		return &reply{code: http.StatusServiceUnavailable, text: "promtsd is shutting down", retryAfter: retryStore}
	}
	if reason := h.notReady.Load(); reason != nil {
		return &reply{code: http.StatusServiceUnavailable, text: "promtsd is not ready: " + *reason, retryAfter: retryStore}
	}
	return nil
}

// admit answers, without looking at the body, a request that cannot be served here or now. nil means go on.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) *reply {
	if refused := h.refuse(w); refused != nil {
		return refused
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &reply{code: http.StatusMethodNotAllowed, text: r.URL.Path + " takes POST, not " + r.Method}
	}
	return nil
}
