package hbasetest

import (
	"crypto/sha256"
	_ "embed" // for the files of testdata
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

var (
	//go:embed testdata/hbase-pom.xml
	hbasePOM []byte
	//go:embed testdata/opentsdb-pom.xml
	opentsdbPOM []byte
)

// hbaseJars returns the folder that holds the jars of HBase and HDFS.
func hbaseJars(t testing.TB, version string) (string, error) {
	return jars(t, "hbase-"+version, hbasePOM, "-Dhbase.version="+version+"-hadoop3")
}

// opentsdbJars returns the folder that holds the jars of OpenTSDB.
func opentsdbJars(t testing.TB) (string, error) { return jars(t, "opentsdb", opentsdbPOM) }

// jars returns the folder that holds what a pom depends on. The first call on a machine has Maven fetch it, which takes
// some twenty seconds; later ones, in this process or another, find it in the user's cache directory under a name that
// changes with the pom and the arguments.
func jars(t testing.TB, name string, pom []byte, args ...string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n%s", args, pom)
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(user, "promtsd-test", name+"-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := child.Lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	_, err = os.Stat(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}

	t.Logf("fetching the jars of %s by Maven into %s", name, dir)
	began := time.Now()
	// Fetched beside and renamed: a fetch that is interrupted leaves nothing that a later run would take for complete.
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	if err := fetch(t, pom, part, args); err != nil {
		return "", err
	}
	if err := os.Rename(part, dir); err != nil {
		return "", err
	}
	t.Logf("fetched %s in %s", name, time.Since(began).Round(time.Second))
	return dir, nil
}

// fetch has Maven copy the dependencies of a pom into a folder.
func fetch(t testing.TB, pom []byte, dir string, args []string) error {
	file := filepath.Join(t.TempDir(), "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return err
	}
	args = append([]string{"-q", "-B", "-ntp", "-f", file, "dependency:copy-dependencies", "-DincludeScope=runtime",
		"-DoutputDirectory=" + dir}, args...)
	out, err := exec.CommandContext(t.Context(), "mvn", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fetch jars: run mvn %q: %w\n%s", args, err, out)
	}
	return nil
}
