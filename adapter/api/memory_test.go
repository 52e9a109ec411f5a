package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/query/budget"
)

// Whatever is asked for takes its memory from the account of the request.
func TestHandler_TakesItsMemoryFromTheAccount(t *testing.T) {
	h := newHandler(t, nil)
	b, err := budget.New(budget.Config{Total: budget.MinTotal, Request: 4 << 20, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, path string) (int, string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if strings.HasPrefix(path, "/federate") {
			h.Federate(w, r)
		} else {
			h.ServeHTTP(w, r)
		}
		return w.Code, w.Body.String()
	}
	steps := url.QueryEscape("max_over_time(vector(1)[5d:1s])")
	for _, path := range []string{
		"query?time=1795262400&query=up", "query?time=1795262400&query=up[1h]", "query?time=1795262400&query=max(up)",
		"query_range?query=up&start=1795262000&end=1795262400&step=60",
		"series?match[]=up", "labels", "label/job/values", "status/tsdb", "query_exemplars?query=http_requests_total",
		"metadata",
		"query?query=" + steps, "/federate?match[]=up",
	} {
		if !strings.HasPrefix(path, "/") {
			path = "/api/v1/" + path
		}
		account := func(held int64) (*budget.Account, context.Context) {
			a := b.Open()
			if err := a.Take(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			return a, budget.NewContext(t.Context(), a)
		}
		fits := !strings.Contains(path, steps)
		a, ctx := account(0)
		if code, text := ask(ctx, path); (code == http.StatusOK) != fits {
			t.Errorf("%s: got %d %s", path, code, text)
		}
		a.Close()

		a, ctx = account(4<<20 - 1)
		if code, text := ask(ctx, path); code != http.StatusUnprocessableEntity ||
			!strings.Contains(text, "--query.max-memory-bytes") {
			t.Errorf("%s: when it may have no more: got %d %s", path, code, text)
		}
		a.Close()

		var others []*budget.Account
		for range budget.MinTotal >> 20 {
			a, _ := account(1 << 20)
			others = append(others, a)
		}
		a = b.Open()
		code, text := ask(budget.NewContext(t.Context(), a), path)
		if fits && (code != http.StatusServiceUnavailable || !strings.Contains(text, "--query.max-total-memory-bytes")) {
			t.Errorf("%s: when others hold all: got %d %s", path, code, text)
		}
		for _, a := range append(others, a) {
			a.Close()
		}
		if held := b.Held(); held != 0 {
			t.Fatalf("%s: %d bytes are held", path, held)
		}
	}
}
