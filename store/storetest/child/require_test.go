package child_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// What a test needs of time decides whether it runs, is skipped, or fails.
func TestRequireTime(t *testing.T) {
	if os.Getenv("REQUIRE_TIME") != "" {
		child.RequireTime(t, time.Minute)
		return
	}
	for _, c := range []struct{ timeout, ci, want string }{
		{"0", "true", "--- PASS"}, {"1h", "true", "--- PASS"}, {"50s", "", "--- SKIP"}, {"50s", "false", "--- SKIP"},
		{"50s", "true", "--- FAIL"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+c.timeout)
		cmd.Env = append(os.Environ(), "REQUIRE_TIME=1", "CI="+c.ci)
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), c.want) {
			t.Errorf("-timeout=%s with CI=%s: got %s, want %s", c.timeout, c.ci, out, c.want)
		}
	}
}
