package promtest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// KillDuringStart runs the process again, as Restart does, but does not wait for it: after the time it is killed as by
// kill -9, wherever it is in its start by then. It fails the test when the process ends by itself before.
func (p *Process) KillDuringStart(after time.Duration) {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatalf("start %s: it is still running; Stop or Kill it first", p.spec.name)
	}
	args, err := p.spec.args(p.addr)
	if err != nil {
		p.t.Fatalf("start %s: %v", p.spec.name, err)
	}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		p.t.Fatalf("start %s: %v", p.spec.name, err)
	}
	defer log.Close() // The process has its own handle.
	cmd := exec.Command(p.spec.bin, args...)
	cmd.Dir = p.spec.dir
	cmd.Stdout, cmd.Stderr = log, log
	dieWithTest(cmd)
	// The process dies with the thread that started it: hold on to that until it is dead anyway.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.spec.name, err)
	}
	kill := time.AfterFunc(after, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	defer kill.Stop()
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s ended by itself during its start: %v", p.spec.name, err)
	}
}
