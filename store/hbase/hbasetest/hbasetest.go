// Package hbasetest runs real HBase for tests: the servers of Apache HBase, with ZooKeeper and, where data has to
// outlive a killed process, HDFS below them, each as a Java process on 127.0.0.1 with free ports and temporary
// directories. A real OpenTSDB can be started on the same tables.
//
//	cluster := hbasetest.Distributed(t, hbasetest.Config{RegionServers: 2})
//	cluster.CreateTables(hbasetest.OpenTSDBTables()...)
//	tsd := hbasetest.OpenTSDB(t, cluster, hbasetest.TSDConfig{})
//	...
//	cluster.RegionServers()[0].Kill()
//
// A Standalone cluster is one process, up in some ten seconds. Join hands out one that all packages of a go test
// command share. Shared is one for the tests of a package that want it empty, or configured in another way. A
// Distributed one is six processes and takes three times as long, and its processes can be killed, frozen and
// restarted one by one without losing what was acknowledged.
//
// Java (a JDK, 11 or later) and Maven have to be installed. Maven fetches the servers into the user's cache directory
// once per machine and version. Where Java or Maven is missing, or the time of go test is nearly over, tests are
// skipped with a line that says so, or fail when the environment variable CI is set; with -short they are skipped;
// everything else that goes wrong fails the test. Every process ends with its test, or with the test binary if that
// dies first, or, of Join, with the go command. The ends of the logs are printed where the test failed.
package hbasetest

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// patience bounds every wait for something that has no time limit of its own: a server's start, a line in a log. It is
// far above what a busy machine needs, because it only decides how soon a broken test ends.
const patience = 3 * time.Minute

// leftForOthers is how much of the time that go test gives to a package there must be for a test with HBase: it may
// take a part of that, and those that come after it want some.
const leftForOthers = 4 * time.Minute

// Available returns nil if HBase can be run on this machine, and otherwise an error that says in one line what is
// missing.
func Available() error {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("run HBase: %s is not in PATH; install a JDK (11 or later) and Maven", tool)
		}
	}
	return nil
}

// Require skips the test with -short, and as child.Skip does if HBase is not Available or there is too little time
// left. Whatever starts a server calls it first.
func Require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs HBase")
	}
	if err := Available(); err != nil {
		child.Skip(t, err)
	}
	child.RequireTime(t, leftForOthers)
}

// named is a port's address as HBase's servers write it.
func named(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// loopback is a port's address as processes listen on it.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
