package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

// TestMain makes this test binary serve as the program promtsd for the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"promtsd": main})
}

// TestScripts runs the command lines in testdata/script: what the program says, where, and with which status. Besides
// the commands of testscript there are
//
//	serving                    waits until the promtsd on $ADDR is ready
//	metric NAME VALUE          checks what the promtsd on $ADDR says of itself
//	truncate PATTERN           cuts files to half their size
//	garble PATTERN             overwrites 64 bytes in the middle of files
//	unsorted FILE FILE         compares two files as sets of lines
//
// the condition root, and the variables ADDR, a free address, and GOLDEN, the directory of cells that OpenTSDB wrote.
func TestScripts(t *testing.T) {
	golden, err := filepath.Abs(filepath.Join("..", "..", "testdata", "opentsdb"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			addr, err := promtest.FreeAddr()
			env.Setenv("ADDR", addr)
			env.Setenv("GOLDEN", golden)
			return err
		},
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serving":  scriptServing,
			"metric":   scriptMetric,
			"truncate": damage(func(b []byte) []byte { return b[:len(b)/2] }),
			"garble":   damage(garbled),
			"unsorted": scriptUnsorted,
		},
	})
}

func scriptServing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: serving")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ts.Check(becomesReady(ctx, "http://"+ts.Getenv("ADDR")+"/-/ready"))
}

func scriptMetric(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: metric NAME VALUE")
	}
	res, err := http.Get("http://" + ts.Getenv("ADDR") + "/metrics")
	ts.Check(err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	ts.Check(err)
	if want := "\n" + args[0] + " " + args[1] + "\n"; !strings.Contains(string(text), want) {
		ts.Fatalf("the metrics do not have %q:\n%s", want, text)
	}
}

// damage is a command that changes the content of the files that match its patterns.
func damage(change func([]byte) []byte) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		var files []string
		for _, pattern := range args {
			found, err := filepath.Glob(ts.MkAbs(pattern))
			ts.Check(err)
			files = append(files, found...)
		}
		if neg || len(files) == 0 {
			ts.Fatalf("no file matches %q", args)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			ts.Check(err)
			ts.Check(os.WriteFile(file, change(content), 0o644))
		}
	}
}

func garbled(b []byte) []byte {
	for i := len(b) / 2; i < min(len(b), len(b)/2+64); i++ {
		b[i] ^= 0xa5
	}
	return b
}

func scriptUnsorted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: unsorted FILE FILE")
	}
	a, b := sortedLines(ts.ReadFile(args[0])), sortedLines(ts.ReadFile(args[1]))
	if !bytes.Equal(a, b) {
		ts.Fatalf("%s has\n%s\n%s has\n%s", args[0], a, args[1], b)
	}
}

func sortedLines(text string) []byte {
	lines := bytes.SplitAfter([]byte(text), []byte("\n"))
	slices.SortFunc(lines, bytes.Compare)
	return bytes.Join(lines, nil)
}

// becomesReady waits until url answers 200.
func becomesReady(ctx context.Context, url string) error {
	last := errors.New("not asked yet")
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(res.Status)
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", url, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
