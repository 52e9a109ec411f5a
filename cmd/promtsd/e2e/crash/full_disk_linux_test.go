package crash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/storetest/child"
)

const smallDisk = 64 << 20

// smallDiskOf mounts a file system of smallDisk bytes. Where that is not allowed the test is skipped, and fails in CI.
func smallDiskOf(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)); err != nil {
		if ci := os.Getenv("CI"); ci != "" && ci != "false" {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves so much room on the disk of a directory; room fills it no longer.
func fill(t *testing.T, dir string, free int64) (room func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		excess := int64(fs.Bavail)*fs.Bsize - free
		if excess <= 0 {
			break
		}
		if _, err := file.Write(block[:min(excess, int64(len(block)))]); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// life is one of a promtsd on a small disk, from its start on, ready or not.
type life struct {
	t   *testing.T
	run *child.Run
	url string
	log string
}

func startLife(t *testing.T, bin, dir string, env ...string) *life {
	t.Helper()
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	l := &life{t: t, url: "http://" + addr, log: filepath.Join(t.TempDir(), "log")}
	cmd := exec.Command(bin, "serve", "--web.listen-address="+addr, "--store.url=pebble:"+filepath.Join(dir, "data"),
		"--write.lease-ttl=2s", "--write.flush-interval=1s", "--web.drain-timeout=5s")
	cmd.Env = append(os.Environ(), env...)
	if l.run, err = child.Start(cmd, l.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.run.Kill()
		if t.Failed() {
			t.Logf("log of promtsd:\n%s", l.logged())
		}
	})
	return l
}

func (l *life) logged() string {
	content, err := os.ReadFile(l.log)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(content[max(0, len(content)-16<<10):])
}

func (l *life) get(ctx context.Context, path string) (code int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	return res.StatusCode, string(content), err
}

// await waits until a path answers with a status and a text.
func (l *life) await(path string, code int, text string) {
	l.t.Helper()
	promtest.Until(l.t, fmt.Sprintf("%s answers %d %s", path, code, text), func(ctx context.Context) error {
		gotCode, gotText, err := l.get(ctx, path)
		if err == nil && (gotCode != code || !strings.Contains(gotText, text)) {
			err = fmt.Errorf("%s answers %d %s", path, gotCode, gotText)
		}
		return err
	})
}

// write sends a sample, the number of which the sample's time gives, and returns the status of the answer.
func (l *life) write(start time.Time, number int) int {
	l.t.Helper()
	res, err := remotetest.Write(l.t.Context(), http.DefaultClient, l.url, remotetest.MessageV1, []remotetest.Series{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "up"}},
		Samples: []request.Sample{{T: start.Add(time.Duration(number) * time.Millisecond).UnixMilli(), V: float64(number)}},
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	return res.StatusCode
}

// count is how many samples a query finds.
func (l *life) count(start time.Time) string {
	l.t.Helper()
	query := url.Values{"query": {"count_over_time(up[1h])"}, "time": {fmt.Sprint(start.Add(time.Minute).Unix())}}
	code, text, err := l.get(l.t.Context(), "/api/v1/query?"+query.Encode())
	if err != nil || code != http.StatusOK {
		l.t.Fatalf("query: %d %s, %v", code, text, err)
	}
	_, value, _ := strings.Cut(text, `"value":[`)
	_, value, _ = strings.Cut(value, `,"`)
	value, _, _ = strings.Cut(value, `"`)
	return value
}

// While the disk is full writes are answered 503 and reads go on, whoever asks is told why, and there is service again
// when there is room: all in one life of promtsd, and from the start of another.
func TestServe_OutlivesAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDiskOf(t)
	start := time.Now().Add(-time.Minute).Truncate(time.Second)
	l := startLife(t, promtest.Promtsd(t), dir)
	l.await("/-/ready", http.StatusOK, "")
	acknowledged := 0
	acknowledge := func() {
		t.Helper()
		for range 20 {
			if code := l.write(start, acknowledged); code/100 != 2 {
				t.Fatalf("write is answered %d", code)
			}
			acknowledged++
		}
	}
	refused := func() {
		t.Helper()
		if code := l.write(start, acknowledged); code != http.StatusServiceUnavailable {
			t.Errorf("write is answered %d, want 503", code)
		}
		if got := l.count(start); got != fmt.Sprint(acknowledged) {
			t.Errorf("a query finds %s samples, want %d", got, acknowledged)
		}
		l.await("/-/healthy", http.StatusOK, "healthy")
	}
	acknowledge()

	room := fill(t, dir, 1<<20)
	l.await("/-/ready", http.StatusServiceUnavailable, "the disk is nearly full")
	refused()
	fill(t, dir, 0)
	l.await("/-/ready", http.StatusServiceUnavailable, "the disk is")
	time.Sleep(3 * time.Second) // more than the lease lasts
	refused()
	room()
	l.await("/-/ready", http.StatusOK, "")
	acknowledge()

	room = fill(t, dir, 0)
	l.await("/-/ready", http.StatusServiceUnavailable, "the disk is")
	begin := time.Now()
	_ = l.run.Stop(time.Minute) // with an error or without: it could store nothing
	if l.run.Killed() {
		t.Errorf("promtsd did not end within %v of SIGTERM on a full disk", time.Since(begin))
	}
	fill(t, dir, 0)

	l = startLife(t, promtest.Promtsd(t), dir)
	l.await("/-/healthy", http.StatusOK, "healthy")
	l.await("/-/ready", http.StatusServiceUnavailable, "the disk is")
	time.Sleep(2 * time.Second)
	if lines := strings.Count(l.logged(), "\n"); lines > 50 {
		t.Errorf("it wrote %d lines of log while it waited for room", lines)
	}
	if err := l.run.Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM while it waits for room: %v", err)
	}
	if used := l.run.CPU(); used > 5*time.Second {
		t.Errorf("it used %v of the processor to wait for room", used)
	}

	l = startLife(t, promtest.Promtsd(t), dir)
	l.await("/-/ready", http.StatusServiceUnavailable, "the disk is")
	room()
	l.await("/-/ready", http.StatusOK, "")
	if got := l.count(start); got != fmt.Sprint(acknowledged) {
		t.Errorf("after all a query finds %s samples, want %d", got, acknowledged)
	}
	acknowledge()
	if err := l.run.Stop(time.Minute); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// When the disk fails so that only a restart helps, promtsd says so and ends by itself; what it acknowledged is there
// in its next life.
func TestServe_EndsByItselfWhenOnlyARestartHelps(t *testing.T) {
	t.Parallel()
	bin, dir, control := promtest.TorturablePromtsd(t), t.TempDir(), filepath.Join(t.TempDir(), "faults")
	inflict := func(disk string) {
		if err := os.WriteFile(control, fmt.Appendf(nil, `{"Disk":%q}`, disk), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	inflict("")
	start := time.Now().Add(-time.Minute).Truncate(time.Second)
	l := startLife(t, bin, dir, "PROMTSD_TORTURE="+control)
	l.await("/-/ready", http.StatusOK, "")
	for number := range 10 {
		if code := l.write(start, number); code/100 != 2 {
			t.Fatalf("write is answered %d", code)
		}
	}
	inflict("fails")
	select {
	case <-l.run.Done:
	case <-time.After(2 * time.Minute):
		t.Fatal("promtsd goes on after the disk failed")
	}
	var exit *exec.ExitError
	if err := l.run.Err(); !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Errorf("it ended with %v, want a status other than 0", err)
	}
	lines := strings.Split(strings.TrimSpace(l.logged()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "only a restart helps") {
		t.Errorf("its last line is %q, want that only a restart helps", last)
	}
	inflict("")
	l = startLife(t, bin, dir, "PROMTSD_TORTURE="+control)
	l.await("/-/ready", http.StatusOK, "")
	if got := l.count(start); got != "10" {
		t.Errorf("in its next life a query finds %s samples, want 10", got)
	}
	if err := l.run.Stop(time.Minute); err != nil {
		t.Errorf("at the end: %v", err)
	}
}
