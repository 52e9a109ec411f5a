package hbasetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/promtsd/promtsd/store/storetest/child"
)

// joined is the HBase of the run that this test binary has joined.
var joined struct {
	mu  sync.Mutex
	sys *system // nil if it has not, or if that HBase has ended
}

// Join hands the standalone cluster of a run to a test. All test binaries of a go test command share it: the first that
// asks starts it, and it ends, with all its data, within a second after that command. So no test may use the names of
// another's tables, in any package, nor harm the process. A test binary that was not started by the go command has one
// of its own. The cluster of another run, of another version, or one that does not answer, is never joined.
func Join(t testing.TB) *Cluster {
	t.Helper()
	Require(t)
	joined.mu.Lock()
	defer joined.mu.Unlock()
	if joined.sys == nil || joined.sys.master.run.Ended() {
		sys, err := join(t, child.Owner())
		if err != nil {
			t.Fatalf("join the HBase of this run: %v", err)
		}
		joined.sys = sys
	}
	return newCluster(t, joined.sys)
}

// address is what those who join a cluster are told.
type address struct {
	Dir                             string // of the system
	ZooKeeper, Master, RegionServer int    // ports
	PID                             int
}

// join finds the cluster of an owner, or starts it. Of several processes one does so and the others wait.
func join(t testing.TB, owner int) (*system, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(cache, "promtsd-test", fmt.Sprintf("run-%d-hbase-%s", owner, version()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := child.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	file := filepath.Join(dir, "address")
	content, err := os.ReadFile(file)
	if err == nil {
		sys, err := attach(t, dir, content)
		if err == nil {
			return sys, nil
		}
		t.Logf("HBase of this run is gone (%v); starting another", err)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	life, err := os.MkdirTemp(dir, "life")
	if err != nil {
		return nil, err
	}
	sys, err := startSystem(t, life, Config{}, func(dir, jars string, cfg Config) (*system, error) {
		sys, err := layStandalone(dir, jars, cfg)
		if err == nil {
			sys.master.owner, sys.master.kept = owner, filepath.Dir(filepath.Dir(dir))
		}
		return sys, err
	})
	if err != nil {
		return nil, err
	}
	content, err = json.Marshal(address{
		sys.dir, sys.ports.zooKeeper, sys.ports.master, sys.ports.regionServers[0], sys.master.run.PID(),
	})
	if err == nil {
		err = os.WriteFile(file, content, 0o644)
	}
	return sys, err
}

// attach makes a system of a cluster that another process has started, if it answers.
func attach(t testing.TB, dir string, content []byte) (*system, error) {
	var a address
	if err := json.Unmarshal(content, &a); err != nil {
		return nil, err
	}
	process, err := child.Attach(a.PID)
	if err != nil {
		return nil, err
	}
	p := ports{zooKeeper: a.ZooKeeper, master: a.Master, regionServers: []int{a.RegionServer}}
	for _, port := range []int{p.zooKeeper, p.master, a.RegionServer} {
		if err := readyListening(loopback(port))(nil); err != nil {
			return nil, err
		}
	}
	cfg := Config{Version: version(), RegionServers: 1}
	jars, err := hbaseJars(t, cfg.Version)
	if err != nil {
		return nil, err
	}
	own, err := os.MkdirTemp(dir, "client") // of this process
	if err == nil {
		err = os.Mkdir(filepath.Join(own, "tmp"), 0o755)
	}
	if err != nil {
		return nil, err
	}
	sys, err := newSystem(own, jars, cfg, p)
	if err != nil {
		return nil, err
	}
	sys.conf = filepath.Join(a.Dir, "conf")
	all := &server{name: standaloneName, log: filepath.Join(a.Dir, standaloneName+".log"), run: &run{Run: process}}
	sys.zooKeeper, sys.master, sys.regionServers = all, all, []*server{all}
	return sys, nil
}
