package hbasetest

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// tick is the unit of the times in /proc, the same on all machines that run Java.
const tick = 10 * time.Millisecond

// processorTime is what all threads of a process have used, in user mode and in the kernel: fields 14 and 15 of its
// line in /proc, of which the second one is the program's name in parentheses and may hold anything.
func processorTime(pid int) (time.Duration, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	const state, user, kernel = 3, 14, 15 // the first field behind the name is the state
	var ticks int64
	for _, field := range []int{user, kernel} {
		var n int64
		if _, err := fmt.Sscan(string(fields[field-state]), &n); err != nil {
			return 0, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}
