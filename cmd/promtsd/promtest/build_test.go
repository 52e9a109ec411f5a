package promtest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

func TestPrometheus_IsBuiltOnceForAllWhoAsk(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it needs a Prometheus")
	}
	const askers = 4
	var paths [askers]string
	// The subtests run at once, as test binaries do; the outer Run returns when all have ended.
	t.Run("ask", func(t *testing.T) {
		for i := range askers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				paths[i] = promtest.Prometheus(t)
			})
		}
	})
	for _, path := range paths {
		if path != paths[0] {
			t.Errorf("got %s and %s, want one program", paths[0], path)
		}
	}
	out, err := exec.Command(paths[0], "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "prometheus, version") {
		t.Errorf("%s --version: got %q, %v", paths[0], out, err)
	}
}
