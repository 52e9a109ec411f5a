package adapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping/request"
)

// checkEncoding answers a request whose body is not compressed as the protocols say. Senders may leave the header out.
func checkEncoding(r *http.Request) *reply {
	encoding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
	if encoding == "" || strings.EqualFold(encoding, "snappy") {
		return nil
	}
	return &reply{code: http.StatusUnsupportedMediaType,
		text: fmt.Sprintf("Content-Encoding %q is not supported: send snappy (block format)", encoding)}
}

// A bodyReader reads and inflates the body of one request within its limits.
type bodyReader struct {
	limit int    // bytes, as sent and inflated
	flag  string // of the limit
	lease *lease // the memory for it is taken from it
}

const (
	// firstBytes is what a body is read into at first: one that trickles in takes no more memory than it has brought.
	firstBytes = 4 << 10
	// connectionBytes is what a connection takes of memory while its request is read.
	connectionBytes = 20 << 10
)

func (b bodyReader) take(n int) *reply {
	if b.lease.take(n) {
		return nil
	}
	return b.overloaded()
}

// overloaded is the answer where there is no memory left, or was asked for more than there ever is for one request.
func (b bodyReader) overloaded() *reply {
	if b.lease.never() {
		return &reply{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(
			"the request takes more memory than one may have, three quarters of the %d bytes that %s allows: "+
				"send fewer samples at a time, or allow more", b.lease.budget.max, flagMaxInFlightBytes)}
	}
	return &reply{code: http.StatusServiceUnavailable, retryAfter: retryOverload, text: fmt.Sprintf(
		"overloaded: the requests under way hold %d bytes, %s allows %d, and a client three times what is free: send again, or allow more",
		b.lease.budget.bytes(), flagMaxInFlightBytes, b.lease.budget.max)}
}

// read reads the body as it was sent, into the memory of buf, which is taken from the lease as far as it goes.
func (b bodyReader) read(ctx context.Context, buf []byte, r *http.Request) ([]byte, *reply) {
	tooLarge := &reply{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(
		"the body has more than the %d bytes that %s allows: send fewer samples at a time, or allow more", b.limit, b.flag)}
	if r.ContentLength > int64(b.limit) {
		return buf, tooLarge
	}
	if refused := b.take(connectionBytes); refused != nil {
		return buf, refused
	}
	if b.take(cap(buf)) != nil {
		buf = nil // a small one may do
	}
	buf, refused, err := b.readAll(buf[:0], r.Body, tooLarge)
	if err != nil {
		refused = replyToReadError(ctx, err)
	}
	return buf, refused
}

// readAll reads all that comes into the memory of buf, which is taken from the lease as far as it goes; more than the
// limit is tooLarge. The error is that of from.
func (b bodyReader) readAll(buf []byte, from io.Reader, tooLarge *reply) ([]byte, *reply, error) {
	for {
		if len(buf) == cap(buf) {
			size := max(firstBytes, 2*cap(buf))
			if refused := b.take(size - cap(buf)); refused != nil {
				return buf, refused, nil
			}
			grown := make([]byte, len(buf), size)
			copy(grown, buf)
			buf = grown
		}
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > b.limit:
			return buf, tooLarge, nil
		case errors.Is(err, io.EOF):
			return buf, nil, nil
		case err != nil:
			return buf, nil, err
		}
	}
}

// replyToReadError answers a body that broke off. One that came too slowly may come faster the next time, and one that
// somebody between here and the sender has cut may come whole.
func replyToReadError(ctx context.Context, err error) *reply {
	err = fmt.Errorf("read body: %w", err)
	network := net.Error(nil)
	if ctx.Err() != nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return &reply{code: http.StatusServiceUnavailable, text: err.Error(), outcome: canceled}
	}
	return &reply{code: http.StatusBadRequest, text: err.Error()}
}

// inflate inflates a block into the memory of buf, which is taken from the lease already.
func (b bodyReader) inflate(buf, block []byte) ([]byte, *reply) {
	size, err := wire.InflatedSize(block)
	if err == nil && size > b.limit {
		refused := badRequest(fmt.Sprintf("the body inflates to %d bytes, %s allows %d: send fewer samples at a time, or "+
			"allow more", size, b.flag, b.limit))
		return buf, &refused
	}
	if err == nil {
		if refused := b.take(max(0, size-cap(buf))); refused != nil {
			return buf, refused
		}
		var content []byte
		if content, err = wire.Inflate(buf, block, b.limit); err == nil {
			return content, nil
		}
	}
	refused := badRequest(err.Error())
	return buf, &refused
}

// Buffer reads the bodies of requests before next is asked, within the bounds on the bodies of writes, so that one that
// comes slowly holds no place that others wait for.
func (h *Handler) Buffer(next http.Handler) http.Handler {
	return h.buffer(next, func(_ bodyReader, r *http.Request, content []byte) (*http.Request, []byte, *reply) {
		return r, content, nil
	})
}

// buffer is Buffer. What change makes of a request and its body is what next gets.
func (h *Handler) buffer(
	next http.Handler, change func(bodyReader, *http.Request, []byte) (*http.Request, []byte, *reply),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		held := h.inFlight.lease(r)
		defer held.release()
		body := bodyReader{limit: h.config.Write.MaxBodyBytes, flag: flagMaxBodyBytes, lease: held}
		r = h.pace(w, r)
		content, refused := body.read(r.Context(), nil, r)
		if refused == nil {
			r, content, refused = change(body, r, content)
		}
		if refused != nil {
			refused.send(w)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(content))
		next.ServeHTTP(w, r.WithContext(request.WithSender(r.Context(), held.client)))
	})
}
