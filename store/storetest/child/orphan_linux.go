package child

import (
	"os/exec"
	"syscall"
)

// dieWithTest has the system kill the process when the test binary dies without its cleanups, as it does on a test
// time-out.
func dieWithTest(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
