package promtest

import (
	"cmp"
	"os/exec"
	"slices"
	"testing"
)

// PromtsdConfig says how StartPromtsd runs promtsd. Its zero value is an empty embedded store.
type PromtsdConfig struct {
	// Dir is the directory of the embedded store, and the one that promtsd runs in; an empty temporary one by default.
	Dir string
	// StoreURL is the value of --store.url; by default it names an embedded store in Dir. In another store "promtsd init"
	// has to have made the tables.
	StoreURL string
	// Args are further flags of promtsd serve, after those that StartPromtsd gives: --web.listen-address,
	// --peer.listen-address and --store.url.
	Args []string
}

// StartPromtsd builds promtsd from the working tree, runs "promtsd serve", and returns when it is ready. The process is
// stopped, and its log shown on failure, when the test ends.
func StartPromtsd(t testing.TB, cfg PromtsdConfig) *Process {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	url := cmp.Or(cfg.StoreURL, "pebble:"+cfg.Dir)
	return startProcess(t, processSpec{
		name: "promtsd",
		bin:  Promtsd(t),
		dir:  cfg.Dir,
		args: func(addr, peer string) ([]string, error) {
			return slices.Concat([]string{
				"serve", "--web.listen-address=" + addr, "--peer.listen-address=" + peer, "--store.url=" + url,
			}, cfg.Args), nil
		},
	})
}

// PromtsdCommand is a run of one of promtsd's other subcommands, built but not started, that ends with the test at
// the latest: PromtsdCommand(t, "cells", "dump", ...).Output().
func PromtsdCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), Promtsd(t), args...)
}
