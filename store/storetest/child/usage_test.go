package child

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestParseUsage_SumsUserAndSystemTime(t *testing.T) {
	const stat = "77 (a ) (b) S 1 77 77 0 -1 4194560 100 0 0 0 1234 66 7 8 20 0 9 0 100 0 0"
	for _, c := range []struct {
		name, stat, status string
		want               Usage
		fault              string // a part of the error; none if empty
	}{
		{"whole", stat, "VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\nVmRSS:\t 5 kB\n", Usage{13 * time.Second, 2 << 20}, ""},
		{"ended", stat, "State:\tZ (zombie)\n", Usage{}, "no VmHWM"},
		{"other unit", stat, "VmHWM:\t 2 MB\n", Usage{}, "no VmHWM"},
		{"cut", "77 (a) S 1 2", "VmHWM:\t 1 kB\n", Usage{}, "3 fields"},
		{"no number", strings.Replace(stat, "1234", "x", 1), "VmHWM:\t 1 kB\n", Usage{}, "field 14"},
		{"empty", "", "", Usage{}, "fields"},
	} {
		got, err := parseUsage([]byte(c.stat), []byte(c.status))
		if c.fault == "" && (err != nil || got != c.want) {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
		if c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: got error %v, want one that says %s", c.name, err, c.fault)
		}
	}
}

func TestReadUsage_OwnProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc to read")
	}
	u, err := readUsage(os.Getpid())
	if err != nil || u.PeakRSS < 1<<20 {
		t.Errorf("got %+v, %v, want at least a MiB", u, err)
	}
}
