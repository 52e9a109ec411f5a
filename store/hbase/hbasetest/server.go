package hbasetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// stopGrace is how long a process may take to end after SIGTERM. A region server closes its regions in that time, which
// is a write to the distributed file system for each.
const stopGrace = time.Minute

// server is a program of which one run at a time serves at an address that stays the same. It belongs to no test;
// Process is how a test holds it.
type server struct {
	name string
	// command makes the program's command line, working directory and environment for one run.
	command func() *exec.Cmd
	// ready says whether the present run serves: nil if it does, and otherwise what is missing.
	ready func(s *server) error
	// log is the path of the file that all runs append to.
	log string
	// kept is the folder that goes with the process if owner, rather than this test binary, decides how long it runs.
	kept  string
	owner int

	run *run // nil while the server is down
}

// run is one life of a server.
type run struct {
	*child.Run
	logStart int64 // size of the log file when the run began
	mayEnd   bool  // the test said that the process may end by itself
}

// launch starts the program and does not wait for it.
func (s *server) launch() error {
	var logStart int64
	if info, err := os.Stat(s.log); err == nil {
		logStart = info.Size()
	}
	var r *child.Run
	var err error
	if s.kept == "" {
		r, err = child.Start(s.command(), s.log)
	} else {
		r, err = child.StartKept(s.command(), s.log, s.owner, s.kept)
	}
	if err != nil {
		return err
	}
	s.run = &run{Run: r, logStart: logStart}
	return nil
}

// await returns when the present run serves.
func (s *server) await(ctx context.Context) error {
	err := child.Until(ctx, patience, func(context.Context) error { return s.look(s.ready(s)) })
	if err != nil {
		return fmt.Errorf("wait until %s serves: %w", s.name, err)
	}
	return nil
}

// awaitLog returns when the log of the present run contains text.
func (s *server) awaitLog(ctx context.Context, text string) error {
	return child.Until(ctx, patience, func(context.Context) error { return s.look(s.logged(text)) })
}

// awaitEnd returns when the process has ended by itself, and takes note of it.
func (s *server) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-s.run.Done:
		s.run = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until %s ends by itself: %w", s.name, ctx.Err())
	}
}

// look makes what is still missing hopeless when the process is gone.
func (s *server) look(missing error) error {
	if missing != nil && s.run.Ended() {
		return fmt.Errorf("%w: the process has ended (%w) without it: %w", child.ErrHopeless, s.run.Err(), missing)
	}
	return missing
}

// logged is nil if the log of the present run contains text.
func (s *server) logged(text string) error {
	if log, err := readFrom(s.log, s.run.logStart); err != nil {
		return err
	} else if !bytes.Contains(log, []byte(text)) {
		return fmt.Errorf("the log of %s has no %q", s.name, text)
	}
	return nil
}

// kill ends the process by SIGKILL, if there is one.
func (s *server) kill() {
	if s.run == nil {
		return
	}
	s.run.Kill()
	s.run = nil
}

// stop ends the process by SIGTERM, or by SIGKILL if that takes too long.
func (s *server) stop() error {
	r := s.run
	s.run = nil
	err := r.Stop(stopGrace)
	// 128 + SIGTERM is how a Java process ends that was asked to.
	const terminated = 128 + int(syscall.SIGTERM)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == terminated {
		return nil
	}
	return err
}

// readyLogged makes a server ready when its log contains text.
func readyLogged(text string) func(*server) error {
	return func(s *server) error { return s.logged(text) }
}

// readyListening makes a server ready when it accepts connections at addr.
func readyListening(addr string) func(*server) error {
	return func(*server) error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// readFrom returns what a file holds from an offset on.
func readFrom(path string, offset int64) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return content[min(offset, int64(len(content))):], nil
}
