package stress_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

// processors is what the processors of this machine did until now.
type processors struct {
	all, busy float64 // of all, in hundredths of a second
	own       float64 // of this process and promtsd
}

// processorsNow reads /proc/stat, whose first line has the times of user, nice, system, idle, iowait, irq, softirq and
// steal.
func processorsNow(p *promtest.Process) (now processors, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return now, err
	}
	for i, field := range strings.Fields(strings.SplitN(string(text), "\n", 2)[0])[1:9] {
		var ticks float64
		if _, err := fmt.Sscan(field, &ticks); err != nil {
			return now, err
		}
		now.all += ticks
		if i != 3 && i != 4 {
			now.busy += ticks
		}
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return now, err
	}
	own := p.Usage().CPU + time.Duration(self.Utime.Nano()+self.Stime.Nano())
	now.own = own.Seconds() * 100
	return now, nil
}

// slowness is how much longer something may take than on a machine that does nothing else: what other processes have
// of the processors is neither the attackers' nor promtsd's doing.
func (now processors) slowness(before processors) float64 {
	all := max(now.all-before.all, 1)
	others := (now.busy - before.busy) - (now.own - before.own)
	return 1 / (1 - min(max(others/all, 0), 0.8))
}
