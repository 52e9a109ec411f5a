package adapter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

// After 5xx a sender repeats the request for ever, and sends nothing else: so an error that repeating can never mend is
// 4xx, and any other is 5xx, or samples would be lost.
func TestWrite_AnswersEachClassOfError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{store.ErrTooLarge, http.StatusRequestEntityTooLarge},
		{store.ErrInvalid, http.StatusBadRequest},
		{store.ErrUnavailable, http.StatusServiceUnavailable},
		{store.ErrClosed, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusInternalServerError}, // not the request's
		// Somebody has to do something first; then repeating helps.
		{store.ErrNoTable, http.StatusInternalServerError},
		{store.ErrCorrupt, http.StatusInternalServerError},
		{mapping.ErrCorrupt, http.StatusInternalServerError},
		// Of the stored settings, say: not of what was sent.
		{mapping.ErrInvalid, http.StatusInternalServerError},
		{errors.New("something new"), http.StatusInternalServerError},
	} {
		s := newServer(t, nil)
		s.appender.before = func(context.Context, *request.Write) (request.Result, error) {
			return request.Result{}, fmt.Errorf("write journal entry: %w", c.err)
		}
		code, header, text := s.post(t, "/api/v1/write", block(t, marshaler(oneV1())), "Content-Type", typeV1)
		if code != c.want || !strings.Contains(text, c.err.Error()) {
			t.Errorf("%v: got %d %q, want %d", c.err, code, text, c.want)
		}
		if retry := header.Get("Retry-After") != ""; retry != (code == http.StatusServiceUnavailable) {
			t.Errorf("%v: Retry-After is %v", c.err, retry)
		}
		if c.want == http.StatusRequestEntityTooLarge && !strings.Contains(text, "max_samples_per_send") {
			t.Errorf("%q does not say what to do", text)
		}
	}
}

// A body that was cut on its way may come whole the next time.
func TestWrite_ABodyThatIsCutMayBeSentAgain(t *testing.T) {
	s := newServer(t, nil)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := block(t, marshaler(oneV1()))
	fmt.Fprintf(conn, "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", typeV1,
		len(body)+1, body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %s, want 503", res.Status)
	}
}
