package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"time"
)

// Buffer has samples that are acknowledged and not in the data table yet; query.Buffer says what Buffered does.
type Buffer interface {
	Buffered(ctx context.Context, tsuids [][]byte, from, to uint32,
		f func(i int, base uint32, points []byte)) (warnings []error)
}

// Local is the Buffer of a process.
type Local interface {
	Buffer // Buffered goes through the hours of each TSUID in ascending order
	// OldestBuffered is the lowest base time of which samples are held; math.MaxUint32: there are none.
	OldestBuffered() uint32
}

const (
	maxAnswers = 8               // that are made at a time; each takes maxRequest, maxPage and a row of memory
	answerWait = 5 * time.Second // for which others wait, as long as a Group does for an answer
)

// Handler serves what this process holds to other promtsd. Without the name of the writer, which is in the store, it
// says nothing. The server has to bound the time that requests and answers take on their way.
type Handler struct {
	local  Local
	writer func() string // as whom this process writes at the moment; others than this one are not answered for
	places chan struct{} // has an entry for each answer that is made
}

// NewHandler returns a Handler.
func NewHandler(local Local, writer func() string) *Handler {
	return &Handler{local, writer, make(chan struct{}, maxAnswers)}
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, Path+" takes POST, from other promtsd", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Query().Get(writerParam) != h.writer() {
		http.Error(w, "the writer that is asked for is not here, or no more", http.StatusGone)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerWait)
	defer cancel()
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	case <-ctx.Done():
		http.Error(w, "too many ask at a time", http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var q question
	if err == nil {
		q, err = parseQuestion(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(h.page(r.Context(), q)) // the other side sees an answer that is cut
}

// page makes an answer. It is made before it is sent: a slow reader shall not keep a series locked.
func (h *Handler) page(ctx context.Context, q question) []byte {
	page := binary.BigEndian.AppendUint32(nil, h.local.OldestBuffered())
	from := q.first
	for i := range q.tsuids {
		left := false
		h.local.Buffered(ctx, q.tsuids[i:i+1], from, q.to, func(_ int, base uint32, points []byte) {
			switch at := (place{i, base}); {
			case left:
			case len(page) >= maxPage:
				left = true
				page = at.append(page, restLeft)
			default:
				page = appendRow(page, at, points)
			}
		})
		if left {
			return page
		}
		from = q.from
	}
	return append(page, endRows)
}
