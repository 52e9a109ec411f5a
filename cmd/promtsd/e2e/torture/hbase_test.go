package torture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/storetest/child"
)

// tortureTables are the tables of the cluster, of which regions are moved; the first is split.
var tortureTables = []string{"tsdb", "promtsd-journal", "promtsd", "tsdb-uid", "tsdb-meta", "hbase:meta"}

// tortureCluster is an HBase whose servers fail, too: at most one at a time, because two of two are no cluster.
type tortureCluster struct {
	*torture
	hbase  *hbasetest.Cluster
	admin  *client.Client
	victim *hbasetest.Process // that is down or frozen; nil if none
}

// TestTorture_HBase tortures three promtsd on one HBase, and that.
func TestTorture_HBase(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an HBase of six processes")
	}
	c := &tortureCluster{hbase: hbasetest.Distributed(t, hbasetest.Config{})}
	c.torture = newTorture(t, slices.Concat(promtsdInjectors(), c.injectors()))
	c.recovered = c.await
	var err error
	c.admin, err = client.New(client.Config{ZooKeeper: []string{c.hbase.ZK()}, ZNode: c.hbase.ZNode()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.admin.Close() })
	url := "hbase://" + c.hbase.ZK() + c.hbase.ZNode()
	initialise := promtest.PromtsdCommand(t, "init", "--store.url="+url, "--salt.width=1", "--salt.buckets=4",
		"--hbase.ttl=400d")
	if out, err := initialise.CombinedOutput(); err != nil {
		t.Fatalf("promtsd init: %v\n%s", err, out)
	}
	cells := filepath.Join(t.ArtifactDir(), "cells.jsonl") // for whoever looks into what went wrong
	t.Cleanup(func() {
		if t.Failed() {
			dump := exec.Command(promtest.Promtsd(t), "cells", "dump", "--store.url="+url, "--output="+cells)
			if out, err := child.Output(dump); err != nil {
				t.Logf("the cells were not dumped: %v\n%s", err, out)
			}
		}
	})
	for n := range 3 {
		flags := tortureFlags(n, func(pick func(...string) string) []string {
			return []string{"--hbase.timeout=" + pick("3s", "10s")}
		})
		c.nodes = append(c.nodes, newTortureNode(t, n, func(string) string { return url }, flags))
	}
	c.run(*tortureFor)
}

// injectors are the faults of the cluster, and of the way to it.
func (c *tortureCluster) injectors() []faultInjector {
	return []faultInjector{
		{"move regions of", 2, c.drawMove},
		{"split or merge a region", 1, c.drawSplit},
		{"write and merge the files of", 1, c.drawCompact},
		{"kill", 2, c.drawKillServer},
		{"freeze", 2, c.drawFreezeServer},
		{"freeze", 1, c.drawFreezeZooKeeper},
		{"connections to HBase of", 4, c.drawNet},
		{"start without ZooKeeper of", 1, c.drawStart},
	}
}

// drawNet spoils the connections of a node to all servers, or to one.
func (c *tortureCluster) drawNet(x *torture, random *rand.Rand) fault {
	d, what := x.someNode(random), netFaults[random.IntN(len(netFaults))]
	to := append(c.hbase.RegionServers(), c.hbase.Master(),
		c.hbase.ZooKeeper())[random.IntN(len(c.hbase.RegionServers())+2)]
	f := fault{
		what: d.name + ": " + what, until: upTo(random, 500*time.Millisecond, 6*time.Second), excuse: mayEnd | mayStall,
		end: func() { x.inflict(d, func(t *injectedFaults) { t.Net, t.NetPort = "", "" }) },
	}
	port := ""
	if random.IntN(2) == 0 {
		f.what += ", " + to.Name()
		port = portOf(to)
	}
	f.begin = func() { x.inflict(d, func(t *injectedFaults) { t.Net, t.NetPort = what, port }) }
	return f
}

var netFaults = []string{"cut", "closed", "hung", "junk", "lost"}

func portOf(p *hbasetest.Process) string { return p.Addr()[strings.LastIndexByte(p.Addr(), ':')+1:] }

// drawStart starts a node while ZooKeeper, which it asks then, cannot be reached well.
func (c *tortureCluster) drawStart(x *torture, random *rand.Rand) fault {
	d, what := x.someNode(random), netFaults[random.IntN(len(netFaults))]
	return fault{
		what: d.name + ": " + what, until: upTo(random, 500*time.Millisecond, 6*time.Second), excuse: mayEnd | mayStall,
		begin: func() {
			d.kill()
			x.inflict(d, func(t *injectedFaults) { t.Net, t.NetPort = what, portOf(c.hbase.ZooKeeper()) })
			d.wake()
		},
		end: func() { x.inflict(d, func(t *injectedFaults) { t.Net, t.NetPort = "", "" }) },
	}
}

// try asks the cluster for something, in the background; in the middle of other faults it may not succeed.
func (c *tortureCluster) try(what string, do func(ctx context.Context) error) {
	c.background(func() {
		ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
		defer cancel()
		if err := do(ctx); err != nil {
			c.t.Logf("not done: %s: %v", what, err)
		}
	})
}

// drawMove gives all regions of a table to the server that comes next.
func (c *tortureCluster) drawMove(_ *torture, random *rand.Rand) fault {
	table := tortureTables[random.IntN(len(tortureTables))]
	return fault{what: table, begin: func() {
		c.try("move regions of "+table, func(ctx context.Context) error {
			regions, err := c.admin.Regions(ctx, table)
			if err != nil {
				return err
			}
			status, err := c.admin.Cluster(ctx)
			if err != nil {
				return err
			}
			for _, region := range regions {
				at := slices.Index(status.Live, region.Server)
				err = errors.Join(err, c.admin.Move(ctx, region, status.Live[(at+1)%len(status.Live)]))
			}
			return err
		})
	}, end: func() {}}
}

// drawSplit splits a region of the data table between two metrics, or makes one of two when there are many.
func (c *tortureCluster) drawSplit(_ *torture, random *rand.Rand) fault {
	pick, metric := random.IntN(1000), byte(2+random.IntN(3))
	return fault{begin: func() {
		c.try("split or merge", func(ctx context.Context) error {
			regions, err := c.admin.Regions(ctx, "tsdb")
			if err != nil {
				return err
			}
			if n := len(regions); n > 6 {
				i := pick % (n - 1)
				return c.admin.Merge(ctx, regions[i], regions[i+1])
			}
			region := regions[pick%len(regions)]
			bucket := byte(0)
			if len(region.Start) > 0 {
				bucket = region.Start[0]
			}
			return c.admin.Split(ctx, region, []byte{bucket, 0, 0, metric})
		})
	}, end: func() {}}
}

func (c *tortureCluster) drawCompact(_ *torture, random *rand.Rand) fault {
	table, major := tortureTables[random.IntN(len(tortureTables)-1)], random.IntN(2) == 0
	return fault{what: table, begin: func() {
		c.try("compact "+table, func(ctx context.Context) error {
			if err := c.admin.FlushTable(ctx, table); err != nil {
				return err
			}
			return c.admin.CompactTable(ctx, table, major)
		})
	}, end: func() {}}
}

// someServer is a region server, or now and then the master.
func (c *tortureCluster) someServer(random *rand.Rand) *hbasetest.Process {
	if random.IntN(4) == 0 {
		return c.hbase.Master()
	}
	servers := c.hbase.RegionServers()
	return servers[random.IntN(len(servers))]
}

// drawKillServer kills a server. await starts it again.
func (c *tortureCluster) drawKillServer(_ *torture, random *rand.Rand) fault {
	server := c.someServer(random)
	return fault{
		what: server.Name(), until: upTo(random, 0, 3*time.Second), excuse: mayEnd | mayStall,
		begin: func() {
			if c.victim == nil {
				c.victim = server
				server.Kill()
			}
		},
		end: func() {},
	}
}

// drawFreezeServer freezes a server, mostly for less than the ten seconds after which it is taken for dead.
func (c *tortureCluster) drawFreezeServer(_ *torture, random *rand.Rand) fault {
	server := c.someServer(random)
	long := upTo(random, 200*time.Millisecond, 6*time.Second)
	if random.IntN(4) == 0 {
		long = 13 * time.Second
	}
	began := false
	return fault{
		what: server.Name(), until: long, excuse: mayEnd | mayStall,
		begin: func() {
			if began = c.victim == nil; began {
				c.victim = server
				server.Pause()
			}
		},
		end: func() {
			if began {
				server.Resume()
			}
		},
	}
}

// drawFreezeZooKeeper freezes the only one that there is, for less than it takes HBase's servers to miss it.
func (c *tortureCluster) drawFreezeZooKeeper(_ *torture, random *rand.Rand) fault {
	zooKeeper := c.hbase.ZooKeeper()
	return fault{
		what: zooKeeper.Name(), until: upTo(random, 200*time.Millisecond, 4*time.Second), excuse: mayEnd | mayStall,
		begin: zooKeeper.Pause, end: zooKeeper.Resume,
	}
}

// await starts servers that have ended, and returns when each region of each table answers.
func (c *tortureCluster) await() {
	servers := append([]*hbasetest.Process{c.hbase.Master()}, c.hbase.RegionServers()...)
	promtest.Until(c.t, "HBase is well", func(ctx context.Context) error {
		for _, server := range servers {
			if server.Ended() {
				server.Start()
			}
		}
		status, err := c.admin.Cluster(ctx)
		if err != nil {
			return err
		}
		if n := len(c.hbase.RegionServers()); len(status.Live) != n || status.InTransition > 0 {
			return fmt.Errorf("%d of %d region servers live, %d regions on their way", len(status.Live), n, status.InTransition)
		}
		for _, table := range tortureTables {
			if err := c.answers(ctx, table); err != nil {
				return err
			}
		}
		return nil
	})
	c.victim = nil
}

// answers reads a row of each region of a table.
func (c *tortureCluster) answers(ctx context.Context, table string) error {
	regions, err := c.admin.Regions(ctx, table)
	if err != nil {
		return err
	}
	for _, region := range regions {
		for _, err := range c.admin.Scan(ctx, client.Scan{Table: table, Start: region.Start, Stop: region.End, Limit: 1}) {
			if err != nil {
				return err
			}
		}
	}
	return nil
}
