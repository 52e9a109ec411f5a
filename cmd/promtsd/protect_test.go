package main

import (
	"io/fs"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// What nobody has asked for is not served, and what is stored is not for every user of the machine.
func TestServe_ProtectsByDefault(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{StoreURL: "pebble:" + data})
	err := remotetest.WriteInTurn(t.Context(), promtsd.URL(), 0, []remotetest.Series{{
		Labels: []prompb.Label{{Name: "__name__", Value: "up"}}, Samples: []request.Sample{{T: 1, V: 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	promtsd.Flush()
	files := 0
	err = filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().Perm()&0o027 != 0 && runtime.GOOS != "windows" {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("the store has %d files, %v", files, err)
	}
	profiles := func(p *promtest.Process) string {
		text, err := promtest.Get(t.Context(), http.DefaultClient, p.URL()+"/debug/pprof/")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := profiles(promtsd); !strings.Contains(text, "nothing is served") {
		t.Errorf("without --web.enable-pprof it answers %q", text)
	}
	if text := profiles(promtest.StartPromtsd(t,
		promtest.PromtsdConfig{Args: []string{"--web.enable-pprof"}})); strings.Contains(text, "nothing is served") {
		t.Errorf("with --web.enable-pprof it answers %q", text)
	}
}
