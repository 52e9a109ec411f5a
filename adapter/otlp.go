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

// maxOTLPMemory is how many times --write.max-body-bytes one OTLP request may take of memory, even if it is the only one.
const maxOTLPMemory = 16

// BufferOTLP is Buffer for requests of OTLP. The memory that next takes to unmarshal one is taken from that of all writes before:
// 28 KB that gzip has packed can become 3 GiB. next gets the body inflated.
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
		bytes, err := memory(content)
		if err != nil {
			refused := badRequest(err.Error())
			return nil, nil, &refused
		}
		if most := maxOTLPMemory * int64(b.limit); bytes > most {
			return nil, nil, &reply{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(
				"the body becomes %d bytes in memory, %d times %s allows %d: send fewer points at a time, or allow more",
				bytes, maxOTLPMemory, b.flag, most)}
		}
		return r, content, b.take(int(bytes))
	})
}

// gunzip inflates what gzip has packed.
func (b bodyReader) gunzip(packed []byte) ([]byte, *reply) {
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	var content []byte
	for err == nil {
		if len(content) == cap(content) {
			size := max(firstBytes, 2*cap(content))
			if refused := b.take(size - cap(content)); refused != nil {
				return nil, refused
			}
			grown := make([]byte, len(content), size)
			copy(grown, content)
			content = grown
		}
		var n int
		n, err = zr.Read(content[len(content):cap(content)])
		if content = content[:len(content)+n]; len(content) > b.limit {
			return nil, &reply{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(
				"the body inflates to more than the %d bytes that %s allows: send fewer points at a time, or allow more", b.limit, b.flag)}
		}
	}
	if !errors.Is(err, io.EOF) {
		refused := badRequest(fmt.Sprintf("inflate the body: %v", err))
		return nil, &refused
	}
	return content, nil
}
