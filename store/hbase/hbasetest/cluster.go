package hbasetest

import (
	"math"
	"os"
	"testing"
)

// VersionVariable is the environment variable that chooses the version of HBase where Config.Version does not. The
// versions known to work are 2.6.4, the default, and 2.5.13.
const VersionVariable = "PROMTSD_TEST_HBASE_VERSION"

// version is the version of HBase that the environment asks for.
func version() string {
	if v := os.Getenv(VersionVariable); v != "" {
		return v
	}
	return "2.6.4"
}

// Config says what cluster to run. Its zero value is fit for use.
type Config struct {
	// Version is that of HBase, such as 2.6.4; by default what VersionVariable says.
	Version string
	// RegionServers is how many region servers a Distributed cluster has; 2 by default. A Standalone one has one.
	RegionServers int
	// Site are properties of hbase-site.xml over those of the harness: a shorter scanner lease, other RPC time-outs.
	Site map[string]string
	// JVM are further flags of Java for the master and the region servers. By default these are quick to start and small:
	// -Xmx1g -XX:+UseSerialGC -XX:TieredStopAtLevel=1. A benchmark wants -Xmx2g -XX:TieredStopAtLevel=4.
	JVM []string
}

// Cluster is a running HBase in the hands of one test. CreateTables, Put and Scan are for the test's own goroutine, the
// rest for any.
type Cluster struct {
	t             testing.TB
	sys           *system
	all           []*Process
	zooKeeper     *Process
	master        *Process
	regionServers []*Process
}

// Standalone runs a cluster that is one process: master, region server and ZooKeeper. It keeps its data in local files
// without flushing them, so that a Kill may lose what was acknowledged; everything else is as in a Distributed cluster.
// The process is killed when the test ends.
func Standalone(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	return start(t, cfg, layStandalone)
}

// Distributed runs a cluster of separate processes: a master, region servers, ZooKeeper, and HDFS, which keeps what was
// acknowledged through the death of any of the others. All are killed when the test ends.
func Distributed(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	return start(t, cfg, layDistributed)
}

func start(t testing.TB, cfg Config, lay layout) *Cluster {
	t.Helper()
	Require(t)
	sys, err := startSystem(t, t.TempDir(), cfg, lay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.kill)
	return newCluster(t, sys)
}

// newCluster hands a running system to a test: at its end processes that ended by themselves fail it, and if it has
// failed the logs are shown.
func newCluster(t testing.TB, sys *system) *Cluster {
	c := &Cluster{t: t, sys: sys}
	for _, s := range sys.servers() {
		c.all = append(c.all, newProcess(t, s, ""))
	}
	c.zooKeeper = newProcess(t, sys.zooKeeper, loopback(sys.ports.zooKeeper))
	c.master = newProcess(t, sys.master, named(sys.ports.master))
	for i, s := range sys.regionServers {
		c.regionServers = append(c.regionServers, newProcess(t, s, named(sys.ports.regionServers[i])))
	}
	t.Cleanup(func() {
		for _, p := range c.all {
			p.check()
		}
		if t.Failed() {
			for _, p := range c.all {
				p.showLog()
			}
		}
	})
	return c
}

// ZK is the host:port of the cluster's ZooKeeper.
func (c *Cluster) ZK() string { return c.zooKeeper.Addr() }

// ZNode is the path in ZooKeeper below which the cluster keeps its state.
func (c *Cluster) ZNode() string { return znode }

// Version is that of the running HBase.
func (c *Cluster) Version() string { return c.sys.cfg.Version }

// ZooKeeper is the process that runs ZooKeeper. Its data outlives it.
func (c *Cluster) ZooKeeper() *Process { return c.zooKeeper }

// Master is the process that runs the master.
func (c *Cluster) Master() *Process { return c.master }

// RegionServers are the processes that run the region servers. In a Standalone cluster that is one, and the same as
// Master and ZooKeeper but for its address.
func (c *Cluster) RegionServers() []*Process { return c.regionServers }

// Log returns the logs of all processes one after the other, from the start of the cluster.
func (c *Cluster) Log() string { return c.sys.log(math.MaxInt) }
