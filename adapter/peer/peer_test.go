package peer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/adapter/peer"
)

// holder holds point lists by TSUID, all of hour 3600.
type holder map[string]string

func (h holder) Buffered(_ context.Context, tsuids [][]byte, from, to uint32, f func(int, uint32, []byte)) []error {
	for i, tsuid := range tsuids {
		if points, ok := h[string(tsuid)]; ok && from <= 3600 && to >= 3600 {
			f(i, 3600, []byte(points))
		}
	}
	return nil
}

func (h holder) OldestBuffered() uint32 {
	if len(h) == 0 {
		return math.MaxUint32
	}
	return 3600
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// newGroup makes a group of a promtsd that holds what local does, and of peers.
func newGroup(t *testing.T, local holder, peers ...peer.Peer) *peer.Group {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &peer.Group{
		Local: local, Timeout: 10 * time.Second, MaxBytes: 8 << 20,
		Client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}},
		Peers: func(context.Context) ([]peer.Peer, error) { return peers, nil },
	}
}

// held asks for the TSUIDs b and a.
func held(ctx context.Context, g *peer.Group, from, to uint32) (got []string, warnings []error) {
	tsuids := [][]byte{[]byte("b"), []byte("a")}
	warnings = g.Buffered(ctx, tsuids, from, to, func(i int, base uint32, points []byte) {
		got = append(got, fmt.Sprintf("%s %d %s", tsuids[i], base, points))
	})
	slices.Sort(got)
	return got, warnings
}

func ask(t *testing.T, local holder, peers ...peer.Peer) (got []string, warnings []error) {
	t.Helper()
	return held(t.Context(), newGroup(t, local, peers...), 0, 7200)
}

// as names the writer of a Handler.
func as(writer string) func() string { return func() string { return writer } }

func TestGroup_GathersWhatAllHold(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	other := serve(t, peer.NewHandler(holder{"b": "2", "c": "3"}, as("X")))
	third := serve(t, peer.NewHandler(holder{"b": large}, as("Y")))
	got, warnings := ask(t, holder{"a": "1"},
		peer.Peer{Name: "x", URL: other, Writer: "X"}, peer.Peer{Name: "y", URL: third, Writer: "Y"})
	want := []string{"a 3600 1", "b 3600 2", "b 3600 " + large}
	if !slices.Equal(got, want) || len(warnings) > 0 {
		t.Errorf("got %d rows and warnings %v, want %d rows", len(got), warnings, len(want))
	}
}

// hours holds as many hours of one series as it says, each with a point list of a megabyte.
type hours int

func (n hours) Buffered(_ context.Context, tsuids [][]byte, from, to uint32, f func(int, uint32, []byte)) []error {
	for h := range n {
		if base := uint32(h+1) * 3600; string(tsuids[0]) == "a" && from <= base && base <= to {
			f(0, base, make([]byte, 1<<20))
		}
	}
	return nil
}

func (hours) OldestBuffered() uint32 { return 3600 }

// What one answer cannot hold is asked for in several, each hour once.
func TestGroup_AsksAgainForWhatIsLeft(t *testing.T) {
	var requests, largest atomic.Int64
	h := peer.NewHandler(hours(40), as("X"))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		largest.Store(max(largest.Load(), int64(answer.Body.Len())))
		_, _ = w.Write(answer.Body.Bytes())
	}))
	g := newGroup(t, nil, peer.Peer{Name: "x", URL: url, Writer: "X"})
	g.MaxBytes = 64 << 20
	got, warnings := held(t.Context(), g, 7200, 37*3600)
	if len(got) != 36 || len(slices.Compact(got)) != 36 || len(warnings) > 0 {
		t.Errorf("got %d rows and warnings %v, want 36 rows", len(got), warnings)
	}
	if requests.Load() < 6 || largest.Load() > 6<<20 {
		t.Errorf("got %d answers of up to %d bytes", requests.Load(), largest.Load())
	}
	g.MaxBytes = 16 << 20
	if _, warnings = held(t.Context(), g, 7200, 37*3600); len(warnings) != 1 ||
		!strings.Contains(warnings[0].Error(), "more than 16777216 bytes") {
		t.Errorf("got warnings %v of an answer that is too long", warnings)
	}
}

// A request names a bounded number of series, so that many are asked for in several.
func TestGroup_AsksForManySeriesInParts(t *testing.T) {
	const n = 40_000
	all := holder{}
	var tsuids [][]byte
	for i := range n {
		tsuids = append(tsuids, binary.BigEndian.AppendUint32(nil, uint32(n-i)))
		all[string(tsuids[i])] = "1"
	}
	g := newGroup(t, nil, peer.Peer{Name: "x", URL: serve(t, peer.NewHandler(all, as("X"))), Writer: "X"})
	found := make([]int, n)
	warnings := g.Buffered(t.Context(), tsuids, 0, 7200, func(i int, _ uint32, _ []byte) { found[i]++ })
	if slices.Min(found) != 1 || slices.Max(found) != 1 || len(warnings) > 0 {
		t.Errorf("series were found %d to %d times, with warnings %v", slices.Min(found), slices.Max(found), warnings)
	}
}

// answers makes a peer that answers the same bytes to everybody.
func answers(t *testing.T, text string) string {
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
}

func TestGroup_WarnsOfThoseThatDoNotAnswer(t *testing.T) {
	refusing := serve(t, http.NotFoundHandler())
	restarted := serve(t, peer.NewHandler(holder{"a": "1"}, as("new")))
	redirecting := serve(t, http.RedirectHandler(restarted+peer.Path+"?writer=new", http.StatusTemporaryRedirect))
	endless := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "0000\x01\x00\x00\x00\x0e\x10\x80\x80\x80\x80\x01") // a row of 256 MiB
		for _, err := w.Write(make([]byte, 1<<20)); err == nil; _, err = w.Write(make([]byte, 1<<20)) {
		}
	}))
	gone := httptest.NewServer(nil)
	gone.Close()
	for want, p := range map[string]peer.Peer{
		"the answer is cut": {Name: "cut", URL: answers(t, "0000\x01\x00\x00")},
		"TSUID 7 of 2":      {Name: "odd", URL: answers(t, "0000\x01\x07\x00\x00\x00\x00\x00")},
		"not asked for":     {Name: "late", URL: answers(t, "0000\x01\x00\x00\xff\x00\x00\x00")},
		"comes out of order": {Name: "again", URL: answers(t, "0000"+
			strings.Repeat("\x01\x00\x00\x00\x0e\x10\x00", 2))},
		"an answer without a row":      {Name: "stuck", URL: answers(t, "0000\x02\x00\x00\x00\x00\x00")},
		"404":                          {Name: "refusing", URL: refusing},
		"307":                          {Name: "redirecting", URL: redirecting},
		"more than 8388608 bytes":      {Name: "endless", URL: endless},
		"410 Gone: the writer that is": {Name: "restarted", URL: restarted, Writer: "old"},
		"refused":                      {Name: "gone", URL: gone.URL},
		"is taken over":                {Name: "dead", Note: "its journal is taken over"},
	} {
		got, warnings := ask(t, holder{"a": "1"}, p)
		if len(got) == 0 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), want) ||
			!strings.Contains(warnings[0].Error(), p.Name) {
			t.Errorf("%s: got %q and warnings %v, want one row and one warning with %q", p.Name, got, warnings, want)
		}
	}
}

// Who has ended has stored what it held, and given its lease up. Another that does not answer still has one.
func TestGroup_DoesNotMissWhoHasEnded(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	ended, frozen := peer.Peer{Name: "ended", URL: gone.URL, Writer: "X"},
		peer.Peer{Name: "frozen", URL: gone.URL, Writer: "Y"}
	g := newGroup(t, holder{})
	calls := 0
	g.Peers = func(context.Context) ([]peer.Peer, error) {
		if calls++; calls == 1 {
			return []peer.Peer{ended, frozen}, nil
		}
		return []peer.Peer{frozen}, nil
	}
	if _, warnings := held(t.Context(), g, 0, 7200); len(warnings) != 1 ||
		!strings.Contains(warnings[0].Error(), "frozen") {
		t.Errorf("got warnings %v, want one, of the frozen one", warnings)
	}
}

// A list of peers of which a part cannot be read is still asked.
func TestGroup_AsksThePeersThatAreKnown(t *testing.T) {
	other := peer.Peer{Name: "x", URL: serve(t, peer.NewHandler(holder{"a": "1"}, as("X"))), Writer: "X"}
	g := newGroup(t, nil)
	g.Peers = func(context.Context) ([]peer.Peer, error) { return []peer.Peer{other}, errors.New("no store") }
	got, warnings := held(t.Context(), g, 0, 7200)
	if len(got) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "no store") {
		t.Errorf("got %q and warnings %v", got, warnings)
	}
}

// within calls f with the context of a request that is remembered.
func within(t *testing.T, f func(ctx context.Context)) {
	t.Helper()
	peer.Remember(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
}

// counting counts the requests that a handler gets.
func counting(n *atomic.Int64, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h.ServeHTTP(w, r)
	})
}

// hanging is a peer that does not answer.
func hanging(t *testing.T, asked *atomic.Int64) string {
	over := make(chan struct{})
	url := serve(t, counting(asked, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})))
	t.Cleanup(func() { close(over) })
	return url
}

func TestGroup_AsksOneThatHangsOnceInARequest(t *testing.T) {
	var asked, well atomic.Int64
	g := newGroup(t, nil, peer.Peer{Name: "hung", URL: hanging(t, &asked), Writer: "X"},
		peer.Peer{Name: "well", URL: serve(t, counting(&well, peer.NewHandler(holder{"a": "1"}, as("Y")))), Writer: "Y"})
	g.Timeout = 50 * time.Millisecond
	for range 2 {
		within(t, func(ctx context.Context) {
			for block := range 5 {
				got, warnings := held(ctx, g, 0, 7200)
				if len(got) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "hung") {
					t.Errorf("block %d: got %q and warnings %v", block, got, warnings)
				}
			}
		})
	}
	if asked.Load() != 2 || well.Load() != 10 {
		t.Errorf("in two requests of five blocks the one that hangs was asked %d times, the other %d times", asked.Load(),
			well.Load())
	}
}

// Two dozen peers that hang do not keep one that answers from being asked, from the second time on at the latest.
func TestGroup_AsksThoseThatHangLast(t *testing.T) {
	var asked atomic.Int64
	url := hanging(t, &asked)
	var peers []peer.Peer
	for i := range 48 {
		peers = append(peers, peer.Peer{Name: "hung", URL: url, Writer: fmt.Sprint(i)})
	}
	g := newGroup(t, nil, append(peers, peer.Peer{
		Name: "well", URL: serve(t, peer.NewHandler(holder{"a": "1"}, as("Y"))), Writer: "Y",
	})...)
	g.Timeout = 200 * time.Millisecond
	_, _ = held(t.Context(), g, 0, 7200)
	for range 2 {
		got, warnings := held(t.Context(), g, 0, 7200)
		if len(got) != 1 || len(warnings) != 9 || !strings.Contains(warnings[8].Error(), "40 more") {
			t.Errorf("got %q and %d warnings %v", got, len(warnings), warnings)
		}
	}
}

// A peer is not asked for hours before all that it said it holds, within the request.
func TestGroup_AsksNobodyForWhatIsOlderThanAllItHolds(t *testing.T) {
	var asked atomic.Int64
	h := holder{"a": "1"}
	g := newGroup(t, nil, peer.Peer{Name: "x", URL: serve(t, counting(&asked, peer.NewHandler(h, as("X")))), Writer: "X"})
	for round := range int64(2) {
		within(t, func(ctx context.Context) {
			for range 5 {
				if got, warnings := held(ctx, g, 0, 0); len(got)+len(warnings) > 0 {
					t.Errorf("got %q and warnings %v", got, warnings)
				}
			}
			if n := asked.Load(); n != 2*round+1 {
				t.Errorf("round %d: it was asked %d times", round, n)
			}
			if got, _ := held(ctx, g, 0, 3600); len(got) != 1 {
				t.Errorf("got %q of an hour of which it holds samples", got)
			}
		})
	}
}

// post posts a request to a handler.
func post(h http.Handler, writer, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, peer.Path+"?writer="+writer, strings.NewReader(body)))
	return w
}

func TestHandler_RefusesWhatIsNoRequest(t *testing.T) {
	h := peer.NewHandler(holder{}, as("secret"))
	const head = "123456781234"
	many := []byte(head)
	for i := range 16385 {
		many = binary.BigEndian.AppendUint32(append(many, 4), uint32(i))
	}
	for body, want := range map[string]int{
		"": 400, head: 200, head + "\x05abc": 400, head + "\x00": 400,
		head + "\x01a\x01b": 200, head + "\x01b\x01a": 400, head + strings.Repeat("\x01a", 500_000): 400,
		string(many): 400, head + strings.Repeat("\x01a", 2<<20): 413,
	} {
		if got := post(h, "secret", body); got.Code != want {
			t.Errorf("body %.30q: got %d %s, want %d", body, got.Code, got.Body, want)
		}
	}
	if got := post(h, "other", head); got.Code != http.StatusGone || strings.Contains(got.Body.String(), "secret") {
		t.Errorf("for another writer: got %d %s", got.Code, got.Body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, peer.Path+"?writer=secret", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d, want 405", w.Code)
	}
}

// crowd counts those that ask at a time.
type crowd struct {
	holder
	now, most atomic.Int64
	goOn      chan struct{}
}

func (c *crowd) Buffered(context.Context, [][]byte, uint32, uint32, func(int, uint32, []byte)) []error {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	defer c.now.Add(-1)
	<-c.goOn
	return nil
}

func TestHandler_AnswersABoundedNumberAtATime(t *testing.T) {
	c := &crowd{goOn: make(chan struct{})}
	h := peer.NewHandler(c, as("X"))
	var asking sync.WaitGroup
	var answered atomic.Int64
	for range 40 {
		asking.Go(func() {
			if got := post(h, "X", "123456781234\x01a"); got.Code == http.StatusOK &&
				bytes.Equal(got.Body.Bytes(), []byte("\xff\xff\xff\xff\x00")) {
				answered.Add(1)
			}
		})
	}
	for range 40 {
		c.goOn <- struct{}{}
	}
	asking.Wait()
	if c.most.Load() > 8 || answered.Load() != 40 {
		t.Errorf("%d of 40 were answered, %d at a time", answered.Load(), c.most.Load())
	}
}
