// Package pebbletest opens the database that most tests run on: an embedded store on a file system in memory, which
// ends with its test.
package pebbletest

import (
	"cmp"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store/pebble"
)

// Open opens a store and closes it at the end of the test. What cfg leaves out is the folder "db" of an empty file
// system in memory, and a logger that discards. It fails the test if the store can not be opened or closed.
func Open(t testing.TB, cfg pebble.Config) *pebble.Store {
	t.Helper()
	cfg.Dir = cmp.Or(cfg.Dir, "db")
	if cfg.FS == nil {
		cfg.FS = vfs.NewMem()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	st, err := pebble.Open(cfg)
	if err != nil {
		t.Fatalf("open a store: %v", err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return st
}
