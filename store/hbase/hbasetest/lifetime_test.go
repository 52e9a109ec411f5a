package hbasetest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// childVariable tells the test binary that another test runs it.
const childVariable = "PROMTSD_TEST_HBASE_CHILD"

func TestStandalone_DiesWithTheTestBinary(t *testing.T) {
	diesWithTheTestBinary(t, shared.Cluster)
}

// A binary that was not started by the go command is a run by itself.
func TestJoin_DiesWithItsRun(t *testing.T) {
	diesWithTheTestBinary(t, hbasetest.Join)
}

func diesWithTheTestBinary(t *testing.T, cluster func(testing.TB) *hbasetest.Cluster) {
	if os.Getenv(childVariable) != "" {
		fmt.Println("region server at", cluster(t).RegionServers()[0].Addr())
		<-t.Context().Done() // It does not come to that.
	}
	hbasetest.Require(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+t.TempDir()) // It leaves its directory behind.
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		addr, _ = strings.CutPrefix(lines.Text(), "region server at ")
		if addr == lines.Text() {
			addr = ""
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // It was killed.
	if addr == "" {
		t.Fatal("the child told no address")
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if ctx.Err() != nil {
			t.Fatalf("%s still answers", addr)
		}
		if err != nil {
			return
		}
		conn.Close()
	}
}

func TestRequire_SaysWhatIsMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short requires nothing")
	}
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct{ ci, want string }{{"", "skip"}, {"false", "skip"}, {"true", "fatal"}} {
		t.Setenv("CI", c.ci)
		end := &ending{TB: t}
		err := end.of(func() { hbasetest.Require(end) })
		if end.how != c.want {
			t.Errorf("CI=%s without Java: got %q, want %q", c.ci, end.how, c.want)
		}
		if err == nil || !strings.Contains(err.Error(), "java is not in PATH") || strings.Contains(err.Error(), "\n") {
			t.Errorf("CI=%s: got %v, want a line that says that Java is missing", c.ci, err)
		}
	}
}

// ending is a test whose end is the result of another.
type ending struct {
	testing.TB
	how string // skip or fatal
	err error
}

var errEnded = errors.New("the test ended")

func (e *ending) Skip(args ...any)  { e.end("skip", args) }
func (e *ending) Fatal(args ...any) { e.end("fatal", args) }

func (e *ending) end(how string, args []any) {
	e.how, e.err = how, args[0].(error)
	panic(errEnded)
}

// of runs f until it ends the test, and returns what it said.
func (e *ending) of(f func()) (err error) {
	defer func() {
		err = e.err
		if r := recover(); r != nil && r != any(errEnded) {
			panic(r)
		}
	}()
	f()
	return e.err
}
