package child

import (
	"errors"
	"os"
	"testing"
	"time"
)

// Skip skips the test for a reason, or fails it where the environment variable CI is set: there a test that does not
// run is not a test that passed.
func Skip(t testing.TB, reason error) {
	t.Helper()
	if ci := os.Getenv("CI"); ci != "" && ci != "false" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// RequireTime skips the test as Skip does if its test binary ends before so much time is over: go test gives a package
// ten minutes unless it is told otherwise. A test that was asked to take longer than that fails.
func RequireTime(t testing.TB, need time.Duration) {
	t.Helper()
	test, ok := t.(interface{ Deadline() (time.Time, bool) }) // a testing.T; benchmarks have all the time that they want
	if !ok {
		return
	}
	if deadline, ok := test.Deadline(); ok && time.Until(deadline) < need {
		if need > 10*time.Minute {
			t.Fatalf("it takes %v, which is longer than go test waits; give -timeout 0", need)
		}
		Skip(t, errors.New("there is too little time left: go test -timeout 1h runs it, too"))
	}
}
