package promtest

import (
	"time"
)

// KillDuringStart runs the process again, as Restart does, but does not wait for it: after the time it is killed as by
// kill -9, wherever it is in its start by then. It fails the test when the process ends by itself before.
func (p *Process) KillDuringStart(after time.Duration) {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatalf("start %s: it is still running; Stop or Kill it first", p.spec.name)
	}
	r, err := p.start()
	if err != nil {
		p.t.Fatalf("start %s: %v", p.spec.name, err)
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Done:
	}
	if r.Kill(); !r.Killed() {
		p.t.Fatalf("%s ended by itself during its start: %v", p.spec.name, r.Err())
	}
}
