package promtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiskUse_SumsByKind(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"1.log": 10, "2.sst": 200, "sub/3.sst": 3000} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	use, err := DiskUse(dir, func(path string) string {
		if strings.HasPrefix(path, "sub") {
			return "sub"
		}
		return filepath.Ext(path)
	})
	if err != nil || len(use) != 3 || use[".log"] != 10 || use[".sst"] != 200 || use["sub"] != 3000 {
		t.Errorf("got %v, %v, want 10, 200 and 3000 bytes", use, err)
	}
	if _, err := DiskUse(filepath.Join(dir, "none"), filepath.Ext); err != nil {
		t.Errorf("a directory that is gone: got %v, want nothing", err)
	}
}
