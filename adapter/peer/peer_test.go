package peer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/adapter/peer"
)

// holder holds point lists by TSUID, all of hour 3600.
type holder map[string]string

func (h holder) Held(_ context.Context, tsuids [][]byte, from, to uint32, f func(int, uint32, []byte)) []error {
	for i, tsuid := range tsuids {
		if points, ok := h[string(tsuid)]; ok && from <= 3600 && to >= 3600 {
			f(i, 3600, []byte(points))
		}
	}
	return nil
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func ask(t *testing.T, local holder, peers ...peer.Peer) (got []string, warnings []error) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	g := peer.Group{
		Local: local, Client: &http.Client{Transport: transport}, Timeout: 10 * time.Second,
		Peers: func(context.Context) ([]peer.Peer, error) { return peers, nil },
	}
	warnings = g.Held(t.Context(), [][]byte{[]byte("a"), []byte("b")}, 0, 7200, func(i int, base uint32, points []byte) {
		got = append(got, fmt.Sprintf("%d %d %s", i, base, points))
	})
	slices.Sort(got)
	return got, warnings
}

// as names the writer of a Handler.
func as(writer string) func() string { return func() string { return writer } }

func TestGroup_GathersWhatAllHold(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	other := serve(t, peer.Handler{Holder: holder{"b": "2", "c": "3"}, Writer: as("X")})
	third := serve(t, peer.Handler{Holder: holder{"b": large}, Writer: as("Y")})
	got, warnings := ask(t, holder{"a": "1"},
		peer.Peer{Name: "x", URL: other, Writer: "X"}, peer.Peer{Name: "y", URL: third + "/", Writer: "Y"})
	want := []string{"0 3600 1", "1 3600 2", "1 3600 " + large}
	if !slices.Equal(got, want) || len(warnings) > 0 {
		t.Errorf("got %d rows and warnings %v, want %d rows", len(got), warnings, len(want))
	}
}

func TestGroup_WarnsOfThoseThatDoNotAnswer(t *testing.T) {
	cut := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{1, 0, 0}) }))
	odd := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{1, 7, 0, 0, 0, 0, 0, 0}) }))
	refusing := serve(t, http.NotFoundHandler())
	restarted := serve(t, peer.Handler{Holder: holder{"a": "1"}, Writer: as("new")})
	gone := httptest.NewServer(nil)
	gone.Close()
	for want, p := range map[string]peer.Peer{
		"the answer is cut": {Name: "cut", URL: cut},
		"TSUID 7 of 2":      {Name: "odd", URL: odd},
		"404":               {Name: "refusing", URL: refusing},
		`"old" is no more`:  {Name: "restarted", URL: restarted, Writer: "old"},
		"refused":           {Name: "gone", URL: gone.URL},
		"is taken over":     {Name: "dead", Note: "its journal is taken over"},
	} {
		got, warnings := ask(t, holder{"a": "1"}, p)
		if len(got) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), want) ||
			!strings.Contains(warnings[0].Error(), p.Name) {
			t.Errorf("%s: got %q and warnings %v, want one row and one warning with %q", p.Name, got, warnings, want)
		}
	}
}

// Who has ended has stored what it held, and given its lease up. Another that does not answer still has one.
func TestGroup_DoesNotMissWhoHasEnded(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	ended, frozen := peer.Peer{Name: "ended", URL: gone.URL, Writer: "X"}, peer.Peer{Name: "frozen", URL: gone.URL, Writer: "Y"}
	calls := 0
	g := peer.Group{
		Local: holder{}, Client: &http.Client{}, Timeout: 10 * time.Second,
		Peers: func(context.Context) ([]peer.Peer, error) {
			if calls++; calls == 1 {
				return []peer.Peer{ended, frozen}, nil
			}
			return []peer.Peer{frozen}, nil
		},
	}
	warnings := g.Held(t.Context(), nil, 0, 0, nil)
	if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "frozen") {
		t.Errorf("got warnings %v, want one, of the frozen one", warnings)
	}
}

func TestGroup_WarnsWhenThePeersAreNotKnown(t *testing.T) {
	g := peer.Group{Local: holder{}, Peers: func(context.Context) ([]peer.Peer, error) { return nil, errors.New("no store") }}
	warnings := g.Held(t.Context(), nil, 0, 0, nil)
	if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "no store") {
		t.Errorf("got warnings %v", warnings)
	}
}

func TestHandler_RefusesWhatIsNoRequest(t *testing.T) {
	url := serve(t, peer.Handler{Holder: holder{}, Writer: as("")}) + peer.Path
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	for body, want := range map[string]int{"": 400, "12345678": 200, "12345678\x05abc": 400, "12345678\x00": 400} {
		res, err := client.Post(url, "", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("body %q: got %d, want %d", body, res.StatusCode, want)
		}
	}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d, want 405", res.StatusCode)
	}
}
