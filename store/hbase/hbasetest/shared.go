package hbasetest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is a standalone cluster that the tests of one package share, which want an empty HBase or one that is
// configured in another way than that of Join. It is started when the first of them asks for it. Tests that share it
// take care not to meet in the names of their tables, and leave its process alone.
//
//	var hbase hbasetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(hbase.Main(m)) }
//
//	func TestPut(t *testing.T) { cluster := hbase.Cluster(t) ... }
type Shared struct {
	// Config is the cluster's.
	Config Config

	// mu guards the following.
	mu  sync.Mutex
	dir string
	sys *system
	err error // of the start, which is tried once
}

// Main runs the tests of a package, then ends the cluster if any of them started it, and returns the exit code for
// TestMain.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Cluster hands the cluster to a test; any test may call it at any time.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	Require(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sys == nil && s.err == nil {
		s.start(t)
	}
	if s.err == nil && s.sys.master.run.Ended() {
		s.err = errors.New("the shared HBase ended by itself during an earlier test; that test shows its log")
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return newCluster(t, s.sys)
}

// start sets sys or err.
func (s *Shared) start(t testing.TB) {
	if s.dir, s.err = os.MkdirTemp("", "hbasetest"); s.err == nil {
		s.sys, s.err = startSystem(t, s.dir, s.Config, layStandalone)
	}
}

// close ends the cluster and removes its data.
func (s *Shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sys != nil {
		s.sys.kill()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
