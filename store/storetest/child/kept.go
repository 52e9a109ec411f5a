package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Owner is the process whose life is a run of tests: the go command that runs this test binary, and perhaps others
// after it, or the binary itself where another program has started it.
func Owner() int {
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent)) // only Linux has it
	if err == nil && strings.TrimSpace(string(name)) == "go" {
		return parent
	}
	return os.Getpid()
}

// keeper runs a command as long as its owner lives, then kills it and removes a folder. A process that has ended, but
// whose parent has not asked how, lives no more.
const keeper = `owner=$1 dir=$2; shift 2
"$@" &
child=$!
echo $child >"$dir/pid.part" && mv "$dir/pid.part" "$dir/pid"
while kill -0 "$owner" && ! grep -qs '^State:.Z' "/proc/$owner/status"; do sleep 0.5; done 2>/dev/null
kill -9 "$child"
wait
rm -rf "$dir"
`

// StartKept runs a command as Start does, but it outlives this process: it ends by SIGKILL within a second after the
// owner has ended, and dir, which must exist, is removed then. The process that sees to that is a shell. The command's
// process id is in the file pid of dir.
func StartKept(cmd *exec.Cmd, log string, owner int, dir string) (*Run, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close() // The processes have their own handles.
	args := append([]string{"-c", keeper, "keeper", strconv.Itoa(owner), dir}, cmd.Args...)
	shell := exec.Command("sh", args...)
	shell.Dir, shell.Env = cmd.Dir, cmd.Env
	shell.Stdout, shell.Stderr = file, file
	// An interrupt from the keyboard is for the owner.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pid := filepath.Join(dir, "pid")
	if err := os.RemoveAll(pid); err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(pid)
		if err == nil {
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", pid, err)
			}
			return Attach(n)
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the shell that keeps %q has ended: %w", cmd.Args, err)
		case <-tick.C:
		}
	}
}

// Attach returns the life of a process that another one has started. How it ends is not known, nor what it took of the
// processor in the end. Attach fails if the process has ended.
func Attach(pid int) (*Run, error) {
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	if err := process.Signal(syscall.Signal(0)); err != nil {
		return nil, fmt.Errorf("find process %d: %w", pid, err)
	}
	done := make(chan struct{})
	r := &Run{Done: done, cmd: &exec.Cmd{Process: process}}
	go func() {
		defer close(done)
		for process.Signal(syscall.Signal(0)) == nil {
			time.Sleep(pollInterval)
		}
		r.err = errors.New("it was started by another process, and has ended")
	}()
	return r, nil
}
