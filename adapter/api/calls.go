package api

import (
	"net/http"
	"runtime"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/mapping/request"
)

// busy is how many goroutines that compute leave enough of the processors to small requests: each of these has its turn
// some hundredths of a second later.
func busy() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

// calls bounds the calls that are no queries, of series and labels and what is said of them, that are worked on at a
// time: each may take a processor for a second. Others wait.
type calls struct{ places *fair.Places }

func newCalls() calls { return calls{fair.NewPlaces(busy())} }

// inTurn serves what serve does when it is its turn. Whoever begins to answer gives the place back: how long that takes
// is the client's matter.
func (c calls) inTurn(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		client := request.SenderOf(r.Context())
		if err := c.places.Enter(r.Context(), client); err != nil {
			respondError(w, err)
			return
		}
		call := &callWriter{ResponseWriter: w, leave: func() { c.places.Leave(client) }}
		defer call.answer()
		serve(call, r)
	}
}

type callWriter struct {
	http.ResponseWriter
	leave func() // nil: it has left
}

// Unwrap is for http.ResponseController.
func (w *callWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *callWriter) answer() {
	if w.leave != nil {
		w.leave()
		w.leave = nil
	}
}

func (w *callWriter) WriteHeader(code int) {
	w.answer()
	w.ResponseWriter.WriteHeader(code)
}

func (w *callWriter) Write(p []byte) (int, error) {
	w.answer()
	return w.ResponseWriter.Write(p)
}
