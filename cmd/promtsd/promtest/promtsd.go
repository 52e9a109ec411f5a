package promtest

import (
	"os/exec"
	"slices"
	"testing"
)

// PromtsdConfig says how StartPromtsd runs promtsd. Its zero value is an empty embedded store.
type PromtsdConfig struct {
	// Dir is the directory of the embedded store; an empty temporary one by default.
	Dir string
	// Args are further flags of promtsd serve, after those that StartPromtsd gives: --web.listen-address and
	// --store.url.
	Args []string
}

// StartPromtsd builds promtsd from the working tree, runs "promtsd serve" on an embedded store, and returns when it is
// ready. The process is stopped, and its log shown on failure, when the test ends.
func StartPromtsd(t testing.TB, cfg PromtsdConfig) *Process {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	return startProcess(t, processSpec{
		name: "promtsd",
		bin:  Promtsd(t),
		dir:  cfg.Dir,
		args: func(addr string) ([]string, error) {
			flags := []string{"serve", "--web.listen-address=" + addr, "--store.url=pebble:" + cfg.Dir}
			return slices.Concat(flags, cfg.Args), nil
		},
	})
}

// PromtsdCommand is a run of one of promtsd's other subcommands, built but not started, that ends with the test at
// the latest: PromtsdCommand(t, "cells", "dump", ...).Output().
func PromtsdCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), Promtsd(t), args...)
}
