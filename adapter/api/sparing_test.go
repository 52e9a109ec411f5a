package api_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/adapter/api"
)

// Requests that are no good do not fill the log.
func TestHandler_LogsTheSameNowAndThen(t *testing.T) {
	var log bytes.Buffer
	h := newHandler(t, func(c *api.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 100 {
		if got := postOTLP(h, []byte("no protobuf")); got.Code != http.StatusBadRequest {
			t.Fatalf("got %d", got.Code)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n < 1 || n > 10 {
		t.Errorf("100 bad requests were logged %d times:\n%.1000s", n, log.String())
	}
}
