package hbasetest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// logTail is how much of the end of each log is printed where a test failed, in bytes.
const logTail = 6 << 10

// Process is a server in the hands of one test. Its address stays the same over Kill, Stop and a new start. Its methods
// are for the test's own goroutine, except Name, Addr and Log, which any may call.
type Process struct {
	t        testing.TB
	s        *server
	addr     string
	logStart int64 // where the log of this test begins
}

// newProcess hands a server to a test.
func newProcess(t testing.TB, s *server, addr string) *Process {
	p := &Process{t: t, s: s, addr: addr}
	if info, err := os.Stat(s.log); err == nil {
		p.logStart = info.Size()
	}
	return p
}

// Name is what kind of server it is, and which of several: "region server 2".
func (p *Process) Name() string { return p.s.name }

// Addr is the host:port that the process serves at: HBase's RPC, ZooKeeper's protocol, or OpenTSDB's HTTP and telnet.
// The host of HBase's servers is written as they write it in hbase:meta and in ZooKeeper.
func (p *Process) Addr() string { return p.addr }

// Log returns all that the process has written to its standard output and standard error so far, over all its runs.
func (p *Process) Log() string {
	content, err := readFrom(p.s.log, 0)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(content)
}

// CPU is the processor time that the present run of the process has used so far. It is known on Linux only; elsewhere
// it is 0.
func (p *Process) CPU() time.Duration {
	p.t.Helper()
	p.mustRun("measure")
	used, err := p.s.run.Usage()
	if err != nil && runtime.GOOS == "linux" {
		p.t.Errorf("measure %s: %v", p.s.name, err)
	}
	return used.CPU
}

// AwaitLog returns when the log of the present run contains text. It fails the test when the process ends without
// that, or after three minutes.
func (p *Process) AwaitLog(text string) {
	p.t.Helper()
	p.mustRun("await the log of")
	if err := p.s.awaitLog(p.t.Context(), text); err != nil {
		p.t.Fatal(err)
	}
}

// Kill ends the process by SIGKILL, as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	p.mustRun("kill")
	p.s.kill()
}

// Stop asks the process to end by SIGTERM and waits for it. It fails the test if the process ends with an error, or
// takes longer than a minute, in which case it is killed.
func (p *Process) Stop() {
	p.t.Helper()
	p.mustRun("stop")
	if err := p.s.stop(); err != nil {
		p.t.Errorf("stop %s: %v", p.s.name, err)
	}
}

// Pause freezes the process by SIGSTOP: its connections stay open and nothing answers. A server of HBase that stays
// frozen for longer than its ZooKeeper session is taken for dead, and ends when it is resumed; that is no failure of
// the test.
func (p *Process) Pause() {
	p.t.Helper()
	p.mustRun("pause")
	p.s.run.mayEnd = true
	p.s.run.Signal(syscall.SIGSTOP)
}

// Resume lets a frozen process run on.
func (p *Process) Resume() {
	p.t.Helper()
	p.mustRun("resume")
	p.s.run.Signal(syscall.SIGCONT)
}

// MayEnd says that the process may end by itself from now on, as a region server does that has lost its ZooKeeper
// session. Otherwise a process that ends by itself fails the test.
func (p *Process) MayEnd() {
	p.t.Helper()
	p.mustRun("let end")
	p.s.run.mayEnd = true
}

// Ended reports whether the process is down: killed, stopped, or ended by itself.
func (p *Process) Ended() bool { return p.s.run == nil || p.s.run.Ended() }

// AwaitEnd returns when the process has ended by itself. It fails the test after three minutes.
func (p *Process) AwaitEnd() {
	p.t.Helper()
	p.MayEnd()
	if err := p.s.awaitEnd(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// Start runs the process again after it was killed, stopped or has ended, with the same address and directory, and does
// not wait for it.
func (p *Process) Start() {
	p.t.Helper()
	if p.s.run != nil && !(p.s.run.mayEnd && p.s.run.Ended()) {
		p.t.Fatalf("start %s: it is still running; Stop or Kill it first", p.s.name)
	}
	if err := p.s.launch(); err != nil {
		p.t.Fatalf("start %s: %v", p.s.name, err)
	}
}

// AwaitReady returns when the process serves. A master does so only when a region server runs, and a region server only
// when a master runs.
func (p *Process) AwaitReady() {
	p.t.Helper()
	p.mustRun("await")
	if err := p.s.await(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// Restart is Start, then AwaitReady.
func (p *Process) Restart() {
	p.t.Helper()
	p.Start()
	p.AwaitReady()
}

// mustRun fails the test when the process is down, which a test that asks something of it did not mean.
func (p *Process) mustRun(verb string) {
	p.t.Helper()
	if p.s.run == nil {
		p.t.Fatalf("%s %s: it is not running", verb, p.s.name)
	}
}

// check fails the test if the process has ended by itself: whatever the test saw after that was not what it asked for.
func (p *Process) check() {
	if r := p.s.run; r != nil && r.Ended() && !r.mayEnd {
		p.t.Errorf("%s ended by itself during the test: %v", p.s.name, r.Err())
	}
}

// showLog prints the end of the test's part of the log.
func (p *Process) showLog() {
	log, err := readFrom(p.s.log, p.logStart)
	if err != nil {
		p.t.Logf("log of %s: %v", p.s.name, err)
		return
	}
	more := ""
	if len(log) > logTail {
		log, more = log[len(log)-logTail:], "..."
	}
	p.t.Logf("log of %s:\n%s%s", p.s.name, more, log)
}
