package adapter

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// leastBytes of a body have to come in WriteLimits.LeastTime each: who stops in the middle holds the memory for what
	// has come no longer than that, instead of for as long as a whole body may take.
	leastBytes = 16 << 10
	// bodyTime is how long a whole body may take.
	bodyTime = 2 * time.Minute
)

// pace returns the request with a body that comes at the least rate. Where it does not, reading it ends with an error
// of the network. The request itself keeps its body, by whose type the server knows how to end it.
func (h *Handler) pace(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &pacedBody{
		ReadCloser: r.Body, control: http.NewResponseController(w), least: h.config.Write.LeastTime,
		end: time.Now().Add(bodyTime),
	}
	b.move()
	r = r.WithContext(r.Context())
	r.Body = b
	return r
}

// pacedBody is a body that has to come at the least rate.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	least   time.Duration
	end     time.Time // of the whole body
	got     int       // bytes since the deadline was moved
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.got += n; b.got >= leastBytes {
		b.move()
	}
	if errors.Is(err, io.EOF) {
		// What follows on the connection, such as its end, is not the body's matter.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// move gives the body time for some more bytes. Where there are no deadlines, as in tests of handlers, there are none.
func (b *pacedBody) move() {
	deadline := time.Now().Add(b.least)
	if deadline.After(b.end) {
		deadline = b.end
	}
	_ = b.control.SetReadDeadline(deadline)
	b.got = 0
}

const writePiece = 1 << 20

// pacedWriter has the client accept an answer in pieces, each within a time: who does not read holds what the answer is
// made of no longer. Between pieces there is no deadline, for their making may take its time.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	bytes   int
}

func (h *Handler) paceAnswer(w http.ResponseWriter) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: h.config.Read.WriteTimeout}
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for streams of events.
func (w *pacedWriter) Flush() {
	_ = w.within(w.control.Flush)
}

func (w *pacedWriter) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		err = w.within(func() error {
			n, err := w.ResponseWriter.Write(p[written:min(len(p), written+writePiece)])
			written += n
			return err
		})
	}
	w.bytes += written
	return written, err
}

// within sends something. Writers that have no connection, as in tests, have no deadline either.
func (w *pacedWriter) within(send func() error) error {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	defer func() { _ = w.control.SetWriteDeadline(time.Time{}) }()
	return send()
}

// end sends what the server still holds of an answer of some size. A small one it sends by itself, with its length.
func (w *pacedWriter) end() {
	if w.bytes > 2<<10 {
		w.Flush()
	}
}
