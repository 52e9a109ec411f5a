package adapter_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

func newMemory(t *testing.T, request int64) *budget.Budget {
	t.Helper()
	b, err := budget.New(budget.Config{Total: 64 << 20, Request: request, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantAllBack waits until nothing is held: a handler ends after its client has the answer.
func wantAllBack(t *testing.T, b *budget.Budget) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); b.Held() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held when all requests have ended", b.Held())
		}
	}
}

func TestRead_TakesItsMemoryFromTheBudget(t *testing.T) {
	memory := newMemory(t, 2<<20+512<<10)
	q := &fakeQuerier{}
	s := newServer(t, func(c *adapter.Config) { c.Memory, c.Querier = memory, q })
	few := []fakeSeries{named("a", points(10))}
	many := []fakeSeries{named("a", odd()), named("b", points(500_000))}
	for _, c := range []struct {
		name   string
		series []fakeSeries
		err    error
		others int64 // bytes that other requests hold
		form   prompb.ReadRequest_ResponseType
		want   int
		text   string
	}{
		{name: "few", series: few, form: formSamples, want: 200},
		{name: "few, streamed", series: few, form: formStreamed, want: 200},
		{name: "many", series: many, form: formSamples, want: 400, text: "--query.max-memory-bytes"},
		{name: "many, streamed", series: many, form: formStreamed, want: 200},
		{name: "few, and others hold all", series: few, others: 64 << 20, form: formSamples, want: 503,
			text: "--query.max-total-memory-bytes"},
		{name: "few, streamed, and others hold all", series: few, others: 64 << 20, form: formStreamed, want: 503,
			text: "--query.max-total-memory-bytes"},
		{name: "few, and others hold all that is for large ones", series: few, others: 55 << 20, form: formSamples,
			want: 200},
		{name: "a failing store", series: many, err: store.ErrCorrupt, form: formStreamed, want: 500, text: "corrupt"},
	} {
		q.series, q.err = c.series, c.err
		var others []*budget.Account
		for left := c.others; left > 0; left -= 1 << 20 { // small ones, so that they have all
			a := memory.Open()
			if err := a.Take(t.Context(), min(left, 1<<20)); err != nil {
				t.Fatal(err)
			}
			others = append(others, a)
		}
		code, header, text := s.send(t, "POST", "/api/v1/read", readBlock(t, c.form, all()))
		if code != c.want || c.want != 200 && !strings.Contains(text, c.text) {
			t.Errorf("%s: got %d %.200q, want %d with %q", c.name, code, text, c.want, c.text)
		}
		if retry := header.Get("Retry-After") != ""; retry != (c.want == 503) {
			t.Errorf("%s: Retry-After is %v", c.name, retry)
		}
		for _, a := range others {
			a.Close()
		}
		wantAllBack(t, memory)
	}
}

func TestRead_GivesItsMemoryBackWhenTheClientLeaves(t *testing.T) {
	memory := newMemory(t, 0)
	entered := make(chan struct{})
	q := &fakeQuerier{series: []fakeSeries{named("a", points(1000))}, gate: func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	s := newServer(t, func(c *adapter.Config) { c.Memory, c.Querier = memory, q })
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/api/v1/read",
			strings.NewReader(string(readBlock(t, formStreamed, all()))))
		if err == nil {
			_, err = s.Client().Do(req)
		}
		left <- err
	}()
	<-entered
	if memory.Held() == 0 {
		t.Error("a read under way holds nothing")
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantAllBack(t, memory)
}

func TestAccount_IsClosedHoweverTheRequestEnds(t *testing.T) {
	memory := newMemory(t, 0)
	h := newServer(t, func(c *adapter.Config) { c.Memory = memory }).handler
	for name, end := range map[string]func(w http.ResponseWriter){
		"return": func(http.ResponseWriter) {},
		"panic":  func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		serve := h.Account(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := budget.From(r.Context()).Take(r.Context(), 10<<20); err != nil {
				t.Error(err)
			}
			if memory.Held() < 10<<20 {
				t.Errorf("%s: %d bytes are held", name, memory.Held())
			}
			end(w)
		}))
		func() {
			defer func() { _ = recover() }()
			serve.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		}()
		if held := memory.Held(); held != 0 {
			t.Errorf("%s: %d bytes are held afterwards", name, held)
		}
	}
}

// A request that takes more memory than it could ever have is refused for good, and leaves memory to others meanwhile.
func TestWrite_NoRequestTakesMoreThanItsPart(t *testing.T) {
	s := newServer(t, func(c *adapter.Config) { c.Write.MaxBodyBytes, c.Write.MaxInFlightBytes = 1<<20, 2<<20 })
	samples := bytes.Repeat([]byte{0x12, 0}, 200_000) // of one series, each 2 bytes here, and 16 when it is taken apart
	empty := snappy.Encode(nil, append(binary.AppendUvarint([]byte{0x0a}, uint64(len(samples))), samples...))
	code, _, text := s.post(t, "/api/v1/write", empty)
	if code != http.StatusRequestEntityTooLarge || !strings.Contains(text, "--write.max-in-flight-bytes") {
		t.Errorf("got %d %q, want 413 that names the limit", code, text)
	}
	if held := s.metric(t, "promtsd_write_in_flight_bytes"); held != 0 {
		t.Errorf("%v bytes are held in the end", held)
	}
}
