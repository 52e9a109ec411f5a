package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Holder has samples that are acknowledged and not in the data table yet; query.Holder says what Held does.
type Holder interface {
	Held(ctx context.Context, tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte)) (warnings []error)
}

// Handler serves what this process holds to other promtsd.
type Handler struct {
	Holder Holder
	Writer func() string // as whom it writes at the moment; others than this one are not answered for
}

// ServeHTTP serves one request.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, Path+" takes POST, from other promtsd", http.StatusMethodNotAllowed)
		return
	}
	if asked, is := r.URL.Query().Get(writerParam), h.Writer(); asked != is {
		http.Error(w, fmt.Sprintf("the writer %q is no more: here is %q", asked, is), http.StatusGone)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tsuids, from, to, err := parseRequest(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// The rows are gathered before they are sent: a slow reader shall not keep a series locked.
	var rows []byte
	h.Holder.Held(r.Context(), tsuids, from, to, func(i int, base uint32, points []byte) {
		rows = appendRow(rows, i, base, points)
	})
	w.Header().Set("Content-Type", "application/octet-stream")
	out := bufio.NewWriter(w)
	_, _ = out.Write(append(rows, endRows))
	_ = out.Flush() // the other side sees an answer that is cut
}
