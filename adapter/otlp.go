package adapter

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/promtsd/promtsd/adapter/wire"
)

// maxOTLPMemory is how many times --write.max-body-bytes one OTLP request may take of memory, even if it is the only
// one.
const maxOTLPMemory = 16

// BufferOTLP is Buffer for requests of OTLP. The memory that next takes to unmarshal one is taken from that of all
// writes before: 28 KB that gzip has packed can become 3 GiB. next gets the body inflated.
func (h *Handler) BufferOTLP(next http.Handler) http.Handler {
	return h.buffer(next, func(b bodyReader, r *http.Request, content []byte) (*http.Request, []byte, *reply) {
		switch encoding := r.Header.Get("Content-Encoding"); encoding {
		case "":
		case "gzip":
			var refused *reply
			if content, refused = b.gunzip(content); refused != nil {
				return nil, nil, refused
			}
			r.Header = maps.Clone(r.Header)
			r.Header.Del("Content-Encoding")
		default:
			return nil, nil, &reply{code: http.StatusUnsupportedMediaType,
				text: fmt.Sprintf("Content-Encoding %q is not supported: send gzip, or none", encoding)}
		}
		memory := wire.OTLPMemory
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			memory = wire.OTLPJSONMemory
		}
		size, err := memory(content)
		if err != nil {
			refused := badRequest(err.Error())
			return nil, nil, &refused
		}
		if most := maxOTLPMemory * int64(b.limit); size > most {
			return nil, nil, &reply{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(
				"the body becomes %d bytes in memory, %d times %s allows %d: send fewer points at a time, or allow more",
				size, maxOTLPMemory, b.flag, most)}
		}
		return r, content, b.take(int(size))
	})
}

// gunzip inflates what gzip has packed.
func (b bodyReader) gunzip(packed []byte) (content []byte, refused *reply) {
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		content, refused, err = b.readAll(nil, zr, &reply{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(
			"the body inflates to more than the %d bytes that %s allows: send fewer points at a time, or allow more", b.limit,
			b.flag)})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		bad := badRequest(fmt.Sprintf("inflate the body: %v", err))
		return nil, &bad
	}
	return content, refused
}
