package promtest

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// Usage returns what the running process has cost since its start. It fails the test when that cannot be read.
func (p *Process) Usage() child.Usage {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("measure %s: it is not running", p.spec.name)
	}
	u, err := p.run.Usage()
	if err != nil {
		p.t.Fatalf("measure %s: %v", p.spec.name, err)
	}
	return u
}

// AwaitQuiet returns when the process has used less than a twentieth of one processor for two seconds: what it had left
// to do in the background is done. A process that stays busy is left at it after limit, and AwaitQuiet says false.
func (p *Process) AwaitQuiet(limit time.Duration) bool {
	p.t.Helper()
	const window = 2 * time.Second
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(window)
	defer tick.Stop()
	for before := p.Usage().CPU; ; {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		now := p.Usage().CPU
		if now-before < window/20 {
			return true
		}
		before = now
	}
}

// StopMeasured is Stop with a grace period to choose, for a process with much to put away, and returns what the life
// that ends has cost, its end included.
func (p *Process) StopMeasured(grace time.Duration) child.Usage {
	p.t.Helper()
	last := p.Usage()
	r := p.run
	p.run = nil
	ended := make(chan error, 1)
	go func() { ended <- r.Stop(grace) }()
	// The kernel forgets the peak with the process, and the one of rusage is no help: it counts what the parent had
	// before exec.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				p.t.Errorf("stop %s: %v", p.spec.name, err)
			}
			last.CPU = r.CPU()
			return last
		case <-tick.C:
			if u, err := r.Usage(); err == nil {
				last = u
			}
		}
	}
}

// DiskUse sums the sizes of the files below dir by what kind says of their paths, which are relative to dir. A file
// that goes away meanwhile counts nothing.
func DiskUse(dir string, kind func(path string) string) (map[string]int64, error) {
	use := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreGone(err)
		}
		relative, err := filepath.Rel(dir, path)
		use[kind(relative)] += info.Size()
		return err
	})
	return use, err
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
