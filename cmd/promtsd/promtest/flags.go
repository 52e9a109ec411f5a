package promtest

import (
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// FreeAddr is an address of 127.0.0.1 that nobody listens on.
func FreeAddr() (string, error) {
	port, err := child.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// FlagsFromEnv are further flags of promtsd serve for benchmarks and for TestJournal_*, from the environment variable
// PROMTSD_TEST_FLAGS, between spaces.
func FlagsFromEnv() []string { return strings.Fields(os.Getenv("PROMTSD_TEST_FLAGS")) }
