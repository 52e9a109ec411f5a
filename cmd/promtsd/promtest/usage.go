package promtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Usage is what one life of a process has cost so far. It is read from /proc, so only Linux has it.
type Usage struct {
	// CPU is the processor time of all threads, in user mode and in the kernel, to a hundredth of a second.
	CPU time.Duration
	// PeakRSS is the largest resident set so far, in bytes. It holds the pages of mapped files, too.
	PeakRSS int64
}

// Usage returns what the running process has cost since its start. It fails the test when that cannot be read.
func (p *Process) Usage() Usage {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("measure %s: it is not running", p.spec.name)
	}
	u, err := readUsage(p.run.cmd.Process.Pid)
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
func (p *Process) StopMeasured(grace time.Duration) Usage {
	p.t.Helper()
	last := p.Usage()
	r := p.run
	p.run = nil
	r.signal(syscall.SIGTERM)
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	// The kernel forgets the peak with the process, and the one of rusage is no help: it counts what the parent had
	// before exec.
	tick := time.NewTicker(pollInterval / 5)
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			if r.err != nil {
				p.t.Errorf("stop %s: %v", p.spec.name, r.err)
			}
			last.CPU = r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
			return last
		case <-deadline.C:
			r.signal(syscall.SIGKILL)
			<-r.done
			p.t.Errorf("stop %s: still running %s after SIGTERM; killed", p.spec.name, grace)
			return last
		case <-tick.C:
			if u, err := readUsage(r.cmd.Process.Pid); err == nil {
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

// readUsage reads the usage of a process that has not been waited for.
func readUsage(pid int) (Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Usage{}, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Usage{}, err
	}
	return parseUsage(stat, status)
}

// parseUsage reads the two files of /proc/PID.
func parseUsage(stat, status []byte) (u Usage, err error) {
	// The name of the program, in parentheses, may hold anything; after it come the fields from the third on.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime, first = 14, 15, 3
	if len(fields) <= stime-first {
		return u, fmt.Errorf("parse /proc/PID/stat: %d fields after the name in %q", len(fields), stat)
	}
	for _, field := range []int{utime, stime} {
		ticks, err := strconv.ParseInt(string(fields[field-first]), 10, 64)
		if err != nil {
			return u, fmt.Errorf("parse field %d of /proc/PID/stat: %w", field, err)
		}
		const tick = time.Second / 100 // USER_HZ, the same on every Linux that Go runs on
		u.CPU += time.Duration(ticks) * tick
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	fields = bytes.Fields(rest)
	if !found || len(fields) < 2 || string(fields[1]) != "kB" {
		// A process that has ended and was not yet waited for has no memory.
		return u, fmt.Errorf("parse /proc/PID/status: no VmHWM in kB")
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return u, fmt.Errorf("parse VmHWM of /proc/PID/status: %w", err)
	}
	u.PeakRSS = kib << 10
	return u, nil
}
