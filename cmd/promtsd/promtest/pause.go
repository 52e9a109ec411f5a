package promtest

import "syscall"

// Pause freezes the process by SIGSTOP: its connections stay open, and nothing answers. It is resumed at the end of the
// test at the latest.
func (p *Process) Pause() {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("pause %s: it is not running", p.spec.name)
	}
	r := p.run
	p.t.Cleanup(func() { r.Signal(syscall.SIGCONT) }) // before the process is stopped, which a frozen one does not notice
	r.Signal(syscall.SIGSTOP)
}

// Resume lets a frozen process run on.
func (p *Process) Resume() {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("resume %s: it is not running", p.spec.name)
	}
	p.run.Signal(syscall.SIGCONT)
}
