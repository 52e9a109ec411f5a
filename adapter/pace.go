package adapter

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// leastBytes of a body have to come in WriteLimits.LeastTime each: who stops in the middle holds the memory for what has come no
	// longer than that, instead of for as long as a whole body may take.
	leastBytes = 16 << 10
	// bodyTime is how long a whole body may take.
	bodyTime = 2 * time.Minute
)

// pace returns the request with a body that comes at the least rate. Where it does not, reading it ends with an error of the
// network. The request itself keeps its body, by whose type the server knows how to end it.
func (h *Handler) pace(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &pacedBody{
		ReadCloser: r.Body, control: http.NewResponseController(w), least: h.config.Write.LeastTime, end: time.Now().Add(bodyTime),
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
