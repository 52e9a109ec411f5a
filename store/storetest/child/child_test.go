package child_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

func shell(t *testing.T, script string) (run *child.Run, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	run, err := child.Start(exec.Command("sh", "-c", script), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Kill)
	return run, log
}

// awaitLog waits until a log has a text, which says that the script has come so far.
func awaitLog(t *testing.T, log, text string) {
	t.Helper()
	err := child.Until(t.Context(), time.Minute, func(context.Context) error {
		if content, err := os.ReadFile(log); err != nil || !strings.Contains(string(content), text) {
			return fmt.Errorf("the log is %q: %w", content, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRun_TellsHowItEnded(t *testing.T) {
	fine, log := shell(t, "echo out; echo err >&2")
	if err := fine.Err(); err != nil || fine.Killed() || !fine.Ended() {
		t.Errorf("got error %v, killed %v, ended %v", err, fine.Killed(), fine.Ended())
	}
	awaitLog(t, log, "out\nerr\n")

	failing, _ := shell(t, "exit 3")
	var exit *exec.ExitError
	if err := failing.Err(); !errors.As(err, &exit) || exit.ExitCode() != 3 || failing.Killed() {
		t.Errorf("got error %v, killed %v, want exit status 3", err, failing.Killed())
	}

	frozen, log := shell(t, "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
	awaitLog(t, log, "deaf")
	if frozen.Ended() {
		t.Error("it has ended")
	}
	if err := frozen.Stop(100 * time.Millisecond); err == nil || !frozen.Killed() {
		t.Errorf("stop of one that is deaf to it: got error %v, killed %v", err, frozen.Killed())
	}

	if _, err := child.Start(exec.Command("/no/such/program"), log); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestUntil_EndsWithTheConditionItsTimeOrItsHope(t *testing.T) {
	looks := 0
	missing := errors.New("missing")
	if err := child.Until(t.Context(), time.Minute, func(context.Context) error {
		if looks++; looks < 3 {
			return missing
		}
		return nil
	}); err != nil || looks != 3 {
		t.Errorf("got error %v after %d looks, want none after 3", err, looks)
	}
	never := func(context.Context) error { return missing }
	if err := child.Until(t.Context(), time.Millisecond, never); !errors.Is(err, missing) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want the end of its time and what was missing", err)
	}
	hopeless := func(context.Context) error { return fmt.Errorf("%w: %w", child.ErrHopeless, missing) }
	if err := child.Until(t.Context(), time.Minute, hopeless); !errors.Is(err, child.ErrHopeless) {
		t.Errorf("got error %v, want %v", err, child.ErrHopeless)
	}
}

func TestFreePort_CanBeListenedOn(t *testing.T) {
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestLock_IsForOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := child.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		unlock, err := child.Lock(path)
		if err == nil {
			unlock()
		}
		held <- err
	}()
	select {
	case err := <-held:
		t.Errorf("a second one got it, error %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	unlock()
	if err := <-held; err != nil {
		t.Error(err)
	}
}
