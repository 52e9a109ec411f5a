package promtest_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

func TestKillDuringStart_LeavesAProcessThatCanStart(t *testing.T) {
	p := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	p.Kill()
	p.KillDuringStart(0)
	p.KillDuringStart(50 * time.Millisecond)
	p.Restart()
	p.Stop()
	// The first life, the last one, and perhaps those between.
	if n := strings.Count(p.Log(), "starting promtsd"); n < 2 || n > 4 {
		t.Errorf("the log tells of %d starts, want 2 to 4:\n%s", n, p.Log())
	}
}

func TestUsage_GrowsUntilTheEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc to read")
	}
	p := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	if !p.AwaitQuiet(time.Minute) {
		t.Error("an idle process is busy for a minute")
	}
	before := p.Usage()
	after := p.StopMeasured(time.Minute)
	if before.PeakRSS < 1<<20 || after.PeakRSS < before.PeakRSS || after.CPU < before.CPU-20*time.Millisecond {
		t.Errorf("got %+v, and %+v at the end", before, after)
	}
}
