package promtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

const (
	// stopGrace is how long a process may take to end after SIGTERM. A Prometheus that cannot deliver its samples takes
	// the flush deadline that Start gives it.
	stopGrace = 30 * time.Second
	// startAttempts bounds how often a start is tried again with another port because somebody took the one found free.
	startAttempts = 5
	// logTail is how much of the end of a log is printed where a test failed, in bytes.
	logTail = 16 << 10
)

// Process is a server that a test runs: a program with an address, a directory and a log. Its address stays the same
// over Kill, Stop and Start again. Its methods are for the test's own goroutine, except URL, Addr, Dir and Log, which
// any may call.
type Process struct {
	t    testing.TB
	spec processSpec
	addr string     // host:port
	peer string     // host:port that is free, too
	log  string     // path of the log file, which all runs of the process append to
	run  *child.Run // nil while the process is down
}

// processSpec says what startProcess shall run.
type processSpec struct {
	// name is how messages call the process.
	name string
	// bin is the program.
	bin string
	// dir is the process's own directory, given to args; it exists.
	dir string
	// args returns the arguments for a listening address, and another for the likes of the process, and puts files that
	// name it in place.
	args func(addr, peer string) ([]string, error)
}

// startProcess starts what spec says on a free port of 127.0.0.1, returns when GET /-/ready answers 200, and stops the
// process at the end of the test.
func startProcess(t testing.TB, spec processSpec) *Process {
	t.Helper()
	p := &Process{t: t, spec: spec, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(p.cleanup)
	for attempt := 1; ; attempt++ {
		for _, addr := range []*string{&p.addr, &p.peer} {
			port, err := child.FreePort()
			if err != nil {
				t.Fatalf("start %s: %v", spec.name, err)
			}
			*addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		err := p.launch()
		if err == nil {
			return p
		}
		if attempt == startAttempts || !strings.Contains(p.Log(), "address already in use") {
			t.Fatalf("start %s: %v", spec.name, err)
		}
		// The next attempt has a log of its own.
		if err := os.Truncate(p.log, 0); err != nil {
			t.Fatalf("start %s again: %v", spec.name, err)
		}
	}
}

// URL is the base of the process's HTTP addresses, without a slash at its end.
func (p *Process) URL() string { return "http://" + p.addr }

// Addr is the host:port that the process listens on.
func (p *Process) Addr() string { return p.addr }

// Peer is the host:port where a promtsd on HBase answers others.
func (p *Process) Peer() string { return p.peer }

// Dir is the directory that the process keeps its data in.
func (p *Process) Dir() string { return p.spec.dir }

// Log returns all that the process has written to its standard output and standard error so far.
func (p *Process) Log() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(content)
}

// Kill ends the process by SIGKILL, as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("kill %s: it is not running", p.spec.name)
	}
	p.run.Kill()
	p.run = nil
}

// Stop asks the process to end by SIGTERM and waits for it. It fails the test if the process ends with a status other
// than 0, or takes longer than 30 seconds, in which case it is killed.
func (p *Process) Stop() {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("stop %s: it is not running", p.spec.name)
	}
	err := p.run.Stop(stopGrace)
	p.run = nil
	if err != nil {
		p.t.Errorf("stop %s: %v", p.spec.name, err)
	}
}

// Restart runs the process again after Kill or Stop, with the same address and directory, and returns when it is ready.
func (p *Process) Restart() {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatalf("restart %s: it is still running; Stop or Kill it first", p.spec.name)
	}
	if err := p.launch(); err != nil {
		p.t.Fatalf("restart %s: %v", p.spec.name, err)
	}
}

// Flush stops the process and runs it again, so that promtsd stores all that it buffers.
func (p *Process) Flush() {
	p.t.Helper()
	p.Stop()
	p.Restart()
}

// launch runs the program once and waits until it is ready. On an error no process is left.
func (p *Process) launch() error {
	r, err := p.start()
	if err != nil {
		return err
	}
	err = child.Until(p.t.Context(), patience, func(ctx context.Context) error {
		return ready(ctx, r, p.URL()+
			"/-/ready")
	})
	if err != nil {
		r.Kill()
		return err
	}
	p.run = r
	return nil
}

// start runs the program once.
func (p *Process) start() (*child.Run, error) {
	args, err := p.spec.args(p.addr, p.peer)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.spec.bin, args...)
	cmd.Dir = p.spec.dir
	return child.Start(cmd, p.log)
}

// cleanup stops what still runs, and shows the log of a failed test. A process that ended by itself is a failure:
// whatever the test saw after that was not what it asked for.
func (p *Process) cleanup() {
	if p.run != nil {
		if p.run.Ended() {
			p.t.Errorf("%s ended by itself during the test: %v", p.spec.name, p.run.Err())
		} else if err := p.run.Stop(stopGrace); err != nil {
			p.t.Errorf("stop %s: %v", p.spec.name, err)
		}
		p.run = nil
	}
	if p.t.Failed() {
		log := p.Log()
		if len(log) > logTail {
			log = "..." + log[len(log)-logTail:]
		}
		p.t.Logf("log of %s:\n%s", p.spec.name, log)
	}
}

// ready is nil if url answers 200; a process that is gone never will.
func ready(ctx context.Context, r *child.Run, url string) error {
	if r.Ended() {
		return fmt.Errorf("%w: the process ended at once: %w", child.ErrHopeless, r.Err())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}
