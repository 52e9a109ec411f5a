// Package promtest runs the real programs of an end-to-end test: Prometheus servers and promtsd itself, each as a
// process of its own on 127.0.0.1 with a free port and a temporary data directory.
//
//	store := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
//	local := promtest.Start(t, promtest.Config{YAML: scrapeAndWriteTo(store.URL())})
//	...
//	remote := promtest.Start(t, promtest.Config{YAML: readFrom(store.URL())})
//	promtest.AssertSame(t, local, remote, promtest.Queries{...})
//
// What cannot be had (a program that does not build, a server that does not become ready) fails the test; nothing here
// skips. Every process ends with its test, and the end of its log is printed where the test failed.
//
// Programs are built by the go command that runs the test, and kept in the user's cache directory, so that the four
// minutes that a first build of Prometheus takes are spent once per machine and version.
package promtest

import (
	"context"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// patience bounds every wait for something that has no time limit of its own: a server's start, a state of affairs. It
// is far above what a busy machine needs, because it only decides how soon a broken test ends.
const patience = 2 * time.Minute

// Until calls cond again and again until it returns nil, and fails the test when it still does not after two minutes.
// what names the awaited state for that failure, whose message also holds cond's last error. It must be called from the
// test's own goroutine.
func Until(t testing.TB, what string, cond func(ctx context.Context) error) {
	t.Helper()
	if err := child.Until(t.Context(), patience, cond); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}
