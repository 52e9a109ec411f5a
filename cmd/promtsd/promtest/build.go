package promtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// Prometheus returns the path of a Prometheus server built from the version that testdata/prometheus/go.mod requires.
// The first call on a machine builds it, which takes minutes; later ones, in this process or another, find it in the
// user's cache directory under a name that changes with the version, its dependencies and the Go toolchain. With -short
// the test is skipped.
func Prometheus(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs a Prometheus")
	}
	path, err := prometheusBinary(t)
	if err != nil {
		t.Fatalf("provide a prometheus binary: %v", err)
	}
	return path
}

// Promtsd returns the path of a promtsd program built from the working tree. The go command's own cache makes a call on
// an unchanged tree cost about a second.
func Promtsd(t testing.TB) string {
	t.Helper()
	return promtsdWith(t, "")
}

// TorturablePromtsd is as Promtsd, built with the tag torture: it takes faults from the file PROMTSD_TORTURE.
func TorturablePromtsd(t testing.TB) string {
	t.Helper()
	return promtsdWith(t, "torture")
}

func promtsdWith(t testing.TB, tag string) string {
	t.Helper()
	path, err := promtsdBinary(tag)
	if err != nil {
		t.Fatalf("provide a promtsd binary: %v", err)
	}
	return path
}

func prometheusBinary(t testing.TB) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "testdata", "prometheus")
	name, err := prometheusName(module)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, name)
	unlock, err := child.Lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	_, err = os.Stat(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}

	t.Logf("building %s; the first time this takes some minutes", path)
	began := time.Now()
	// Built beside and renamed: a build that is interrupted leaves nothing that a later run would take for a server.
	part := path + ".part"
	if err := goBuild(module, part, "github.com/prometheus/prometheus/cmd/prometheus"); err != nil {
		return "", err
	}
	if err := os.Rename(part, path); err != nil {
		return "", err
	}
	t.Logf("built prometheus in %s", time.Since(began).Round(time.Second))
	return path, nil
}

// prometheusName is the file name of the server that the nested module describes: prometheus-VERSION-HASH, the hash
// being over everything else that the build depends on.
func prometheusName(module string) (string, error) {
	version, err := goOutput(module, "list", "-m", "-f", "{{.Version}}", "github.com/prometheus/prometheus")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, name, len(content))
		sum.Write(content)
	}
	return "prometheus-" + version + "-" + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

func promtsdBinary(tag string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	// One name per working tree: two clones on one machine do not take each other's program.
	tree := sha256.Sum256([]byte(root + tag))
	path := filepath.Join(cache, "promtsd-"+hex.EncodeToString(tree[:8]))
	unlock, err := child.Lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	return path, goBuild(root, path, "github.com/promtsd/promtsd/cmd/promtsd", "-tags="+tag)
}

// moduleRoot is the directory of the go.mod that rules the test's working directory, which go test sets to the
// directory of the package under test.
func moduleRoot() (string, error) {
	file, err := goOutput("", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	if file == "" || file == os.DevNull {
		return "", errors.New("find go.mod: the test does not run inside the module; use go test")
	}
	return filepath.Dir(file), nil
}

// cacheDir is where built programs are kept; it exists on return.
func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(user, "promtsd-test")
	return dir, os.MkdirAll(dir, 0o755)
}

// goBuild builds pkg as the module in dir sees it. Version control stamps are left out: a test does not need them, and
// with them every commit would link again.
func goBuild(dir, out, pkg string, flags ...string) error {
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", out}, flags, []string{pkg})
	_, err := goOutput(dir, args...)
	return err
}

// goOutput runs the go command in dir ("" is the working directory) and returns its standard output, trimmed. A go.work
// of the user's is left aside.
func goOutput(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
