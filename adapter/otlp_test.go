package adapter_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/adapter"
)

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := zw.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What an OTLP request becomes in memory is known, and taken from that of all writes, before anything is made of it.
func TestBufferOTLP_TakesTheMemoryOfWhatIsUnmarshalled(t *testing.T) {
	const limit = 1 << 20
	s := newServer(t, func(c *adapter.Config) { c.Write.MaxBodyBytes, c.Write.MaxInFlightBytes = limit, 8<<20 })
	var got []byte
	var inside func()
	next := s.handler.BufferOTLP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		if r.Header.Get("Content-Encoding") != "" {
			t.Error("the body is inflated, and the request says that it is not")
		}
		if inside != nil {
			inside()
		}
	}))
	post := func(body []byte, encoding, contentType string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		w := httptest.NewRecorder()
		next.ServeHTTP(w, r)
		return w
	}
	const protobuf, json = "application/x-protobuf", "application/json"
	points := func(n int) []byte { return bytes.Repeat([]byte{0x0a, 0x00}, n) }
	for _, c := range []struct {
		name, encoding, contentType string
		body                        []byte
		code                        int
		text                        string
	}{
		{"plain", "", protobuf, points(10), 200, ""},
		{"packed", "gzip", protobuf, gzipped(t, points(10)), 200, ""},
		{"elements of two bytes", "", protobuf, points(100_000), 413, "becomes 25600000 bytes in memory"},
		{"the same, packed", "gzip", protobuf, gzipped(t, points(100_000)), 413, "--write.max-body-bytes"},
		{"elements in JSON", "", json, []byte("[" + strings.Repeat("{},", 100_000) + "{}]"), 413, "in memory"},
		{"inflates to too much", "gzip", protobuf, gzipped(t, make([]byte, limit+1)), 413, "inflates to more than"},
		{"nested", "", json, []byte(strings.Repeat("[", 1000)), 400, "nested too deep"},
		{"no gzip", "gzip", protobuf, []byte("no gzip at all"), 400, "inflate the body"},
		{"another encoding", "zstd", protobuf, points(1), 415, "send gzip"},
	} {
		got = nil
		answer := post(c.body, c.encoding, c.contentType)
		if answer.Code != c.code || !strings.Contains(answer.Body.String(), c.text) {
			t.Errorf("%s: got %d %q, want %d with %q", c.name, answer.Code, answer.Body, c.code, c.text)
		}
		if c.code == 200 && !bytes.Equal(got, points(10)) {
			t.Errorf("%s: next got %x", c.name, got)
		}
	}

	// Two at a time: each may have 5 MB, both together may not.
	inside = func() {
		inside = nil
		if answer := post(points(20_000), "", protobuf); answer.Code != 503 ||
			!strings.Contains(answer.Body.String(), "overloaded") {
			t.Errorf("beside another: got %d %q, want 503", answer.Code, answer.Body)
		}
	}
	for range 2 {
		if answer := post(points(20_000), "", protobuf); answer.Code != 200 {
			t.Errorf("alone: got %d %q", answer.Code, answer.Body)
		}
	}
	if held := s.metric(t, "promtsd_write_in_flight_bytes"); held != 0 {
		t.Errorf("%v bytes are held in the end", held)
	}
}
