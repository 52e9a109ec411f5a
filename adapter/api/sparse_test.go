package api_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/adapter/api"
)

// One client that sends garbage again and again, or leaves before its answer, does not fill the log.
func TestHandler_LogsWhatIsRepeatedSparsely(t *testing.T) {
	var log bytes.Buffer
	h := newHandler(t, func(c *api.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 100 {
		r := httptest.NewRequest("POST", "/api/v1/otlp/v1/metrics", strings.NewReader("garbage"))
		r.Header.Set("Content-Type", "application/x-protobuf")
		h.ServeHTTP(httptest.NewRecorder(), r)
		h.ServeHTTP(gone{httptest.NewRecorder()}, httptest.NewRequest("GET", "/api/v1/labels", nil))
	}
	if n := strings.Count(log.String(), "\n"); n == 0 || n > 4 {
		t.Errorf("got %d lines, such as %.500s", n, log.String())
	}
}

var errGone = errors.New("connection reset")

// gone is a client that has left.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errGone }
