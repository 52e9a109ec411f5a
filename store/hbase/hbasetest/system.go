package hbasetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/storetest/child"
)

const (
	// host is the name under which HBase's servers are known in a cluster.
	host = "localhost"
	// znode is where the cluster keeps its state in ZooKeeper.
	znode = "/hbase"
	// startAttempts bounds how often a start is tried again with other ports because somebody took one found free.
	startAttempts = 3
)

// ports are the TCP ports of a cluster.
type ports struct {
	zooKeeper, master                   int
	regionServers                       []int
	nameNode, nameNodeHTTP              int
	dataNode, dataNodeHTTP, dataNodeIPC int
}

// choosePorts finds free ports for a cluster with n region servers.
func choosePorts(n int) (ports, error) {
	p := ports{regionServers: make([]int, n)}
	wanted := []*int{
		&p.zooKeeper, &p.master, &p.nameNode, &p.nameNodeHTTP, &p.dataNode, &p.dataNodeHTTP, &p.dataNodeIPC,
	}
	for i := range p.regionServers {
		wanted = append(wanted, &p.regionServers[i])
	}
	taken := map[int]bool{}
	for _, port := range wanted {
		for *port == 0 || taken[*port] {
			var err error
			if *port, err = child.FreePort(); err != nil {
				return ports{}, err
			}
		}
		taken[*port] = true
	}
	return p, nil
}

// quickStart keeps Java to its first compiler, which halves the time that a cluster takes to start on two cores, for
// slower code in the long run.
const quickStart = "-XX:TieredStopAtLevel=1"

// standaloneName is how messages call the only process of a standalone cluster.
const standaloneName = "HBase"

// system is the servers of a cluster, which belong to no test.
type system struct {
	cfg   Config
	dir   string // holds everything below
	conf  string // the configuration, first in the class path
	jars  string
	ports ports
	// In a standalone system all of them but the file system's two are the same server.
	zooKeeper, master, nameNode, dataNode *server
	regionServers                         []*server
	client                                *javaClient
}

// layout makes the servers of a system from a configuration, in an empty folder, and starts none.
type layout func(dir string, jars string, cfg Config) (*system, error)

// startSystem lays out a system below dir and starts it. Where a port was taken meanwhile it tries others.
func startSystem(t testing.TB, dir string, cfg Config, lay layout) (*system, error) {
	if cfg.Version == "" {
		cfg.Version = version()
	}
	if cfg.RegionServers == 0 {
		cfg.RegionServers = 2
	}
	jars, err := hbaseJars(t, cfg.Version)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		attemptDir := filepath.Join(dir, strconv.Itoa(attempt))
		if err := os.MkdirAll(filepath.Join(attemptDir, "tmp"), 0o755); err != nil {
			return nil, err
		}
		sys, err := lay(attemptDir, jars, cfg)
		if err != nil {
			return nil, err
		}
		err = sys.start(t.Context())
		if err == nil {
			return sys, nil
		}
		sys.kill()
		log := sys.log(math.MaxInt)
		// HBase and HDFS say BindException, ZooKeeper and Java itself the rest.
		taken := strings.Contains(log, "BindException") || strings.Contains(log, "Address already in use")
		if attempt == startAttempts || !taken {
			return nil, fmt.Errorf("start HBase %s: %w\n%s", cfg.Version, err, sys.log(logTail))
		}
	}
}

// newSystem makes a system without servers.
func newSystem(dir, jars string, cfg Config, p ports) (*system, error) {
	sys := &system{cfg: cfg, dir: dir, conf: filepath.Join(dir, "conf"), jars: jars, ports: p}
	var err error
	sys.client, err = sys.newJavaClient()
	return sys, err
}

// layStandalone is the layout of one process with everything in it.
func layStandalone(dir, jars string, cfg Config) (*system, error) {
	p, err := choosePorts(1)
	if err != nil {
		return nil, err
	}
	sys, err := newSystem(dir, jars, cfg, p)
	if err != nil {
		return nil, err
	}
	site := standaloneSite(dir, p)
	maps.Copy(site, cfg.Site)
	if err := writeConf(sys.conf, map[string]properties{"hbase-site.xml": site}); err != nil {
		return nil, err
	}
	all := sys.server(standaloneName, func(s *server) error {
		return errors.Join(s.logged("Master has completed initialization"), s.logged("Serving as "))
	}, cfg.JVM, "org.apache.hadoop.hbase.master.HMaster", "start")
	sys.zooKeeper, sys.master, sys.regionServers = all, all, []*server{all}
	return sys, nil
}

// layDistributed is the layout of a process for each server.
func layDistributed(dir, jars string, cfg Config) (*system, error) {
	p, err := choosePorts(cfg.RegionServers)
	if err != nil {
		return nil, err
	}
	sys, err := newSystem(dir, jars, cfg, p)
	if err != nil {
		return nil, err
	}
	site := distributedSite(dir, p)
	maps.Copy(site, cfg.Site)
	err = writeConf(sys.conf, map[string]properties{
		"hbase-site.xml": site, "core-site.xml": coreSite(dir, p), "hdfs-site.xml": hdfsSite(dir, p),
	})
	if err != nil {
		return nil, err
	}
	const hdfs, hbase = "org.apache.hadoop.hdfs.server.", "org.apache.hadoop.hbase."
	sys.nameNode = sys.server("name node", readyLogged("NameNode RPC up at"), nil,
		hdfs+"namenode.NameNode")
	sys.dataNode = sys.server("data node", readyLogged("successfully registered with NN"), nil,
		hdfs+"datanode.DataNode")
	// ZooKeeper's own web page would listen on a fixed port of all interfaces.
	sys.zooKeeper = sys.server("ZooKeeper", readyListening(loopback(p.zooKeeper)),
		[]string{"-Dzookeeper.admin.enableServer=false"}, hbase+"zookeeper.HQuorumPeer", "start")
	sys.master = sys.server("master", readyLogged("Master has completed initialization"), cfg.JVM,
		hbase+"master.HMaster", "start")
	for i, port := range p.regionServers {
		sys.regionServers = append(sys.regionServers,
			sys.server(fmt.Sprintf("region server %d", i+1), readyLogged("Serving as "), cfg.JVM,
				hbase+"regionserver.HRegionServer", fmt.Sprintf("-Dhbase.regionserver.port=%d", port), "start"))
	}
	return sys, nil
}

// server describes a Java process of the system: a main class and its arguments.
func (sys *system) server(name string, ready func(*server) error, jvm []string, class string, args ...string) *server {
	args = slices.Concat(jvm, []string{class}, args)
	return &server{
		name:    name,
		command: func() *exec.Cmd { return sys.java(args...) },
		ready:   ready,
		log:     filepath.Join(sys.dir, strings.ReplaceAll(name, " ", "-")+".log"),
	}
}

// java is a run of Java on the cluster's jars and configuration; args begin with further flags of Java's.
func (sys *system) java(args ...string) *exec.Cmd {
	flags := []string{
		"-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData", quickStart,
		"-Djava.io.tmpdir=" + filepath.Join(sys.dir, "tmp"), "-Djava.net.preferIPv4Stack=true",
		// What HBase and Hadoop take from inside Java, which is closed since 17.
		"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
		"--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
		"-cp", sys.conf + string(os.PathListSeparator) + filepath.Join(sys.jars, "*"),
	}
	cmd := exec.Command("java", append(flags, args...)...)
	cmd.Dir = sys.dir
	return cmd
}

// servers are all servers of the system, each once, in the order of their start.
func (sys *system) servers() []*server {
	all := slices.Concat([]*server{sys.nameNode, sys.dataNode, sys.zooKeeper, sys.master}, sys.regionServers)
	var once []*server
	for _, s := range all {
		if s != nil && !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// start runs all servers and returns when the cluster serves.
func (sys *system) start(ctx context.Context) error {
	if sys.nameNode == nil {
		return launch(ctx, sys.servers()...)
	}
	format := sys.java("org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-nonInteractive")
	if _, err := child.Output(format); err != nil {
		return fmt.Errorf("format HDFS: %w", err)
	}
	if err := launch(ctx, sys.nameNode, sys.dataNode, sys.zooKeeper); err != nil {
		return err
	}
	// A master that finds no data node sleeps for ten seconds before it looks again, and a region server that finds no
	// master for eight.
	if err := sys.master.launch(); err != nil {
		return fmt.Errorf("start %s: %w", sys.master.name, err)
	}
	if err := sys.master.awaitLog(ctx, "Registered as active master"); err != nil {
		return err
	}
	if err := launch(ctx, sys.regionServers...); err != nil {
		return err
	}
	return sys.master.await(ctx)
}

// launch starts servers side by side and returns when all of them serve.
func launch(ctx context.Context, servers ...*server) error {
	for _, s := range servers {
		if err := s.launch(); err != nil {
			return fmt.Errorf("start %s: %w", s.name, err)
		}
	}
	for _, s := range servers {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends all servers.
func (sys *system) kill() {
	sys.client.close()
	for _, s := range sys.servers() {
		s.kill()
	}
}

// log is the logs of all servers one after the other, of each at most a number of bytes from its end.
func (sys *system) log(limit int) string {
	var b strings.Builder
	for _, s := range sys.servers() {
		content, err := os.ReadFile(s.log)
		content = content[max(0, len(content)-limit):]
		fmt.Fprintf(&b, "==> %s <==\n%s", s.name, content)
		if err != nil {
			fmt.Fprintf(&b, "(no log: %v)\n", err)
		}
	}
	return b.String()
}
