package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/storetest"
)

// While what is held is being stored, clients are refused.
func TestListener_RefusesWhileAllIsStored(t *testing.T) {
	addr, err := promtest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	var refusing, started atomic.Bool
	begun, goOn, storing, stored := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
	systemd := false
	file := ""
	l := &listener{
		web: &web.FlagConfig{
			WebListenAddresses: &[]string{addr}, WebSystemdSocket: &systemd, WebConfigFile: &file,
		},
		logger: slog.New(slog.DiscardHandler), drain: time.Minute, metrics: http.NotFoundHandler(),
		connections: storetest.Must(newConnections(100, "--web.max-connections", nil, slog.New(slog.DiscardHandler))),
	}
	served := service{
		public: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refusing.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else if r.URL.Path == "/slow" {
				begun <- true
				<-goOn
				fmt.Fprint(w, "slow")
			}
		}),
		start:   func(context.Context) error { return nil },
		started: func() { started.Store(true) },
		refuse:  func() { refusing.Store(true) },
		finish: func(context.Context) error {
			storing <- true
			<-stored
			return io.ErrUnexpectedEOF
		},
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) string {
		res, err := client.Get("http://" + addr + path)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", string(text), err)
	}
	expect := func(when, path, want string) {
		t.Helper()
		if got := get(path); got != want {
			t.Errorf("%s: %s answers %q, want %q", when, path, got, want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	serving := l.listen(ctx)
	l.waitFor("a test")
	promtest.Until(t, "it listens before it serves", func(context.Context) error {
		if got := get("/-/ready"); got != "503 promtsd is not ready: a test\n<nil>" {
			return fmt.Errorf("/-/ready answers %s", got)
		}
		return nil
	})
	expect("before it serves", "/-/healthy", "200 promtsd is healthy.\n<nil>")
	go func() { ended <- errors.Join(l.run(serving, served), l.close()) }()
	promtest.Until(t, "it listens", func(context.Context) error {
		if got := get("/"); got != "200 <nil>" || !started.Load() {
			return fmt.Errorf("/ answers %s", got)
		}
		return nil
	})
	slow := make(chan string)
	go func() { slow <- get("/slow") }()
	<-begun
	stop()
	promtest.Until(t, "it refuses", func(context.Context) error {
		if got := get("/"); got != "503 <nil>" {
			return fmt.Errorf("/ answers %s", got)
		}
		return nil
	})
	select {
	case <-storing:
		t.Error("what is held is stored while a request is under way")
	default:
	}
	close(goOn)
	if got, want := <-slow, "200 slow<nil>"; got != want {
		t.Errorf("the request under way is answered %q, want %q", got, want)
	}
	<-storing
	expect("while what is held is stored", "/", "503 <nil>")
	close(stored)
	if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it ends with %v, want the error of storing", err)
	}
	if got := get("/"); got == "200 <nil>" || got == "503 <nil>" {
		t.Errorf("at the end, clients are answered %q", got)
	}
}

// TestServe_EndsWellWhenItIsStoppedDuringItsStart has the signal come before the settings are read.
func TestServe_EndsWellWhenItIsStoppedDuringItsStart(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var log bytes.Buffer
	err := execute(ctx, []string{"serve", "--store.url=pebble:" + t.TempDir(), "--web.listen-address=127.0.0.1:0"},
		streams{strings.NewReader(""), io.Discard, &log})
	if err != nil || !strings.Contains(log.String(), "stopped during the start") {
		t.Errorf("got %v, want no error, and the log to say so:\n%s", err, &log)
	}
}
