package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Usage is what one life of a process has cost so far. It is read from /proc, so only Linux has it.
type Usage struct {
	// CPU is the processor time of all threads, in user mode and in the kernel, to a hundredth of a second.
	CPU time.Duration
	// PeakRSS is the largest resident set so far, in bytes. It holds the pages of mapped files, too.
	PeakRSS int64
}

// Usage returns what the process has cost since its start. When it has ended that is an error.
func (r *Run) Usage() (Usage, error) { return readUsage(r.PID()) }

// CPU waits for the end of the process and returns all the processor time that it took.
func (r *Run) CPU() time.Duration {
	<-r.Done
	return r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
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
