// Package child is what tests need that run programs as processes of their own: lives that end with the test binary at
// the latest, their logs and what they cost, free ports, and waiting for what cannot be waited for otherwise.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Run is one life of a program. Its methods may be called by any goroutine.
type Run struct {
	// Done is closed when the process has ended.
	Done <-chan struct{}

	cmd *exec.Cmd
	err error // set before Done is closed
}

// Start runs a command that is not started yet, whose output is appended to a log file.
func Start(cmd *exec.Cmd, log string) (*Run, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close() // The process has its own handle.
	cmd.Stdout, cmd.Stderr = file, file
	dieWithTest(cmd)
	done := make(chan struct{})
	r := &Run{Done: done, cmd: cmd}
	started := make(chan error, 1)
	go func() {
		// Where the system ends a child with its parent, parent means the thread that started it: hold on to that.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		r.err = cmd.Start()
		started <- r.err
		if r.err == nil {
			r.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

// Output runs a command to its end and returns what it wrote. That is part of the error, too.
func Output(cmd *exec.Cmd) ([]byte, error) {
	dieWithTest(cmd)
	runtime.LockOSThread() // as in Start
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("run %q: %w\n%s", cmd.Args, err, out)
	}
	return out, nil
}

// PID is the process id.
func (r *Run) PID() int { return r.cmd.Process.Pid }

// Ended reports whether the process has ended.
func (r *Run) Ended() bool {
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

// Err waits for the end of the process and tells how it ended: nil or an *exec.ExitError.
func (r *Run) Err() error {
	<-r.Done
	return r.err
}

// Signal sends a signal; a process that is gone already is what every caller wants.
func (r *Run) Signal(sig syscall.Signal) { _ = r.cmd.Process.Signal(sig) }

// Kill ends the process by SIGKILL, as kill -9 does, and returns when it is gone.
func (r *Run) Kill() {
	r.Signal(syscall.SIGKILL)
	<-r.Done
}

// Stop ends the process by SIGTERM, or by SIGKILL if that takes longer than grace, which is an error. Otherwise it
// returns how the process ended.
func (r *Run) Stop(grace time.Duration) error {
	r.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.Done:
		return r.err
	case <-timer.C:
		r.Kill()
		return fmt.Errorf("still running %v after SIGTERM; killed", grace)
	}
}

// Killed reports whether the process has ended by SIGKILL.
func (r *Run) Killed() bool {
	exit, ok := errors.AsType[*exec.ExitError](r.Err())
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}
