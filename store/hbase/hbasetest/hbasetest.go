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
// A Standalone cluster is one process, up in some ten seconds; Shared spreads that cost over the tests of a package.
// A Distributed one is six processes and takes three times as long, and its processes can be killed, frozen and
// restarted one by one without losing what was acknowledged.
//
// Java (a JDK, 11 or later) and Maven have to be installed. Maven fetches the servers into the user's cache directory
// once per machine and version. Where Java or Maven is missing tests are skipped with a line that says so, or fail
// when the environment variable CI is set; everything else that goes wrong fails the test. Every process ends with its
// test, or with the test binary if that dies first, and the ends of the logs are printed where the test failed.
package hbasetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

const (
	// patience bounds every wait for something that has no time limit of its own: a server's start, a line in a log. It
	// is far above what a busy machine needs, because it only decides how soon a broken test ends.
	patience = 3 * time.Minute
	// pollInterval is the pause between two looks at a condition that cannot be waited for.
	pollInterval = 100 * time.Millisecond
)

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

// Require skips the test if HBase is not Available, or fails it where the environment variable CI is set: there a test
// that does not run is not a test that passed. Whatever starts a server calls it first.
func Require(t testing.TB) {
	t.Helper()
	err := Available()
	if err == nil {
		return
	}
	if ci := os.Getenv("CI"); ci != "" && ci != "false" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// until polls cond until it returns nil, or an error that wraps errHopeless; its own error is cond's last one.
func until(ctx context.Context, cond func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := cond(ctx)
		if err == nil || errors.Is(err, errHopeless) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up (%w); the last look said: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// errHopeless is what a condition of until wraps when it cannot become true any more.
var errHopeless = errors.New("it will not happen any more")

// freePort finds a port that nobody listens on, below the range from which systems take the ports of outgoing
// connections. In that range a client that keeps trying to reach a killed server can meet itself, and the server finds
// its port taken when it comes back.
func freePort() (int, error) {
	const low, high, tries = 10000, 32000, 100
	var err error
	for range tries {
		port := low + rand.IntN(high-low)
		var l net.Listener
		if l, err = net.Listen("tcp", loopback(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port from %d to %d: %w", low, high, err)
}

// named is a port's address as HBase's servers write it.
func named(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// loopback is a port's address as processes listen on it.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
