package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/journal"
)

// oneRow is a Local that holds one row of everything.
type oneRow struct{}

func (oneRow) Buffered(_ context.Context, tsuids [][]byte, from, _ uint32, f func(int, uint32, []byte)) []error {
	for i := range tsuids {
		f(i, from, []byte{1})
	}
	return nil
}

func (oneRow) OldestBuffered() uint32 { return 0 }

// startPeer serves a promtsd without a store, to be closed.
func startPeer(t *testing.T, f *peerFlags, webConfig string, writer journal.ID) (*peerServer, error) {
	t.Helper()
	p, err := f.open(webConfig, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	var now atomic.Uint64
	err = p.serve(t.Context(), oneRow{}, func() journal.ID { return journal.ID(now.Load()) }, func() {})
	now.Store(uint64(writer))
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p, err
}

// Where TLS or authentication is on, and the client's configuration fits, peers are asked; where it does not fit, the
// start fails.
func TestPeers_AreAskedOrTheStartFails(t *testing.T) {
	files := promtest.NewWebFiles(t)
	for _, c := range []struct {
		web, client string
		want        string // part of the error
	}{
		{"", "", ""}, {"", "password", ""}, {"tls", "trust", ""}, {"mutual", "show", ""}, {"users", "password", ""},
		{"both", "all", ""},
		{"tls", "", "certificate signed by unknown authority"}, {"mutual", "trust", "certificate required"},
		{"users", "", "401"}, {"both", "trust", "401"}, {"both", "wrong", "401"},
		{"both", "bad", "--peer.http.config.file="}, {"nosuch", "", "nosuch.yml"}, {"password", "", "password.yml"},
	} {
		t.Run(c.web+" "+c.client, func(t *testing.T) {
			f := &peerFlags{listen: "127.0.0.1:0"}
			webConfig := ""
			if c.web != "" {
				webConfig = files.Path(c.web)
			}
			if c.client != "" {
				f.httpConfig = files.Path(c.client)
			}
			one, err := startPeer(t, f, webConfig, 0)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "guess") {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f.webConfig, webConfig = webConfig, "" // either names it
			other, err := startPeer(t, f, webConfig, 7)
			if err != nil {
				t.Fatal(err)
			}
			leases := []journal.Lease{
				{Writer: 7, Holder: 7, Address: other.url},
				{Writer: 8, Holder: 8, Address: "http://peer:secret@127.0.0.1:1"},
				{Writer: 9, Holder: 7, Address: other.url},
			}
			g := one.group(oneRow{}, func() journal.ID { return 0 },
				func(context.Context) ([]journal.Lease, error) { return leases, nil })
			rows := 0
			warnings := fmt.Sprint(g.Buffered(t.Context(), [][]byte{{1}}, 3600, 3600, func(int, uint32, []byte) { rows++ }))
			if rows != 2 || strings.Count(warnings, "are missing") != 2 || strings.Contains(warnings, "secret") {
				t.Errorf("got %d rows, want 2, and warnings %s", rows, warnings)
			}
		})
	}
}

// A promtsd that cannot reach itself where others are to does start: the network may come later.
func TestPeers_StartWithoutTheirNetwork(t *testing.T) {
	addr, err := promtest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startPeer(t, &peerFlags{listen: "127.0.0.1:0", advertise: addr}, "", 0)
	if err != nil || p.url != "http://"+addr {
		t.Errorf("got %v at %s, want no error at %s", err, p.url, addr)
	}
}

// Another promtsd at one's own address is a mistake.
func TestPeers_KnowThemselves(t *testing.T) {
	other, err := startPeer(t, &peerFlags{listen: "127.0.0.1:0"}, "", 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = startPeer(t, &peerFlags{listen: "127.0.0.1:0", advertise: strings.TrimPrefix(other.url, "http://")}, "",
		0); err == nil {
		t.Error("it takes another promtsd for itself")
	}
}

func TestParsePeerURL_TakesHostAndPortOnly(t *testing.T) {
	for text, want := range map[string]bool{
		"http://h:1": true, "https://10.0.0.7:9202": true, "http://[::1]:9202": true,
		"": false, "h:1": false, "http://h": false, "http://h:0": false, "http://h:65536": false, "http://:1": false,
		"ftp://h:1":      false,
		"http://u:p@h:1": false, "http://h:1/": false, "http://h:1?x=1": false, "http://h:1#x": false, "http://h:1?": false,
		"http://a b:1": false, "http://h:1\n": false,
	} {
		if _, err := parsePeerURL(text); (err == nil) != want {
			t.Errorf("%q: got %v", text, err)
		}
	}
	for advertise, want := range map[string]bool{
		"": true, "h:1": true, "10.0.0.7:9202": true, "[::1]:9202": true, "h": false, "http://h:1": false,
		"u:secret@h:1": false,
	} {
		err := (&peerFlags{advertise: advertise}).check(false)
		if (err == nil) != want || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("--peer.advertise-address=%s: got %v", advertise, err)
		}
	}
	if (&peerFlags{advertise: "h:1"}).check(true) == nil {
		t.Error("the embedded store takes an address for peers")
	}
}

// The embedded store has no peers: nobody listens for them, and nothing answers what they ask.
func TestServe_EmbeddedStoreHasNoPeers(t *testing.T) {
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	if _, err := net.Dial("tcp", promtsd.Peer()); err == nil {
		t.Error("it listens for peers")
	}
	for _, path := range []string{"/internal/v1/held", "/internal/v2/held"} {
		res, err := remotetest.Post(t.Context(), http.DefaultClient, promtsd.URL()+path+"?writer=0000000000000000", "",
			[]byte("12345678"))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 404 && res.StatusCode != 405 {
			t.Errorf("%s answers %s: %s", path, res.Status, text)
		}
	}
}

// The commands that ask a running promtsd do so with TLS and authentication.
func TestHTTPConfig_OfHealthcheckAndExplain(t *testing.T) {
	files := promtest.NewWebFiles(t)
	addr, err := promtest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- execute(ctx, []string{
			"serve", "--store.url=pebble:" + t.TempDir(), "--web.listen-address=" + addr, "--web.config.file=" +
				files.Path("both"),
		}, streams{strings.NewReader(""), io.Discard, io.Discard})
	}()
	run := func(args ...string) (string, error) {
		var out strings.Builder
		err := execute(t.Context(), args, streams{strings.NewReader(""), &out, io.Discard})
		return out.String(), err
	}
	promtest.Until(t, "it is ready", func(context.Context) error {
		_, err := run("healthcheck", "--url=https://"+addr+"/-/ready", "--http.config.file="+files.Path("all"))
		return err
	})
	if out, err := run("explain", "--url=https://"+addr, "--http.config.file="+files.Path("all"), "up"); err != nil ||
		!strings.Contains(out, "series: 0") {
		t.Errorf("explain: %v, %s", err, out)
	}
	for _, args := range [][]string{
		{"healthcheck", "--url=https://u:hidden@" + addr + "/-/ready"},
		{"healthcheck", "--url=https://u:hidden@" + addr + "/-/ready", "--http.config.file=" + files.Path("trust")},
		{"explain", "--url=https://u:hidden@" + addr, "up"},
		{"explain", "--url=https://u:hidden@" + addr, "--http.config.file=" + files.Path("trust"), "up"},
		{"explain", "--url=https://u:hidden@" + addr + ":x", "up"},
	} {
		if out, err := run(args...); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v: got %v, %s", args, err, out)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
