// Package faults_test breaks one part of an HBase cluster after the other while promtsd takes samples and answers
// queries.
package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/e2e/crowd"
	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// The tables that init makes, and HBase's own table of regions.
const (
	dataTable    = "tsdb"
	journalTable = "promtsd-journal"
	regionTable  = "hbase:meta"
)

// TestHBaseFaults_NoAcknowledgedSampleIsLost breaks one part of a cluster after the other while two promtsd take
// samples and answer queries. Senders see slow answers and 503, and nothing else; whatever was acknowledged is read
// back.
func TestHBaseFaults_NoAcknowledgedSampleIsLost(t *testing.T) {
	f := newFaults(t)
	f.step("move regions", f.moveRegions)
	f.step("split and merge regions", f.splitAndMerge)
	f.step("kill a region server", f.killRegionServer)
	f.step("restart the master", f.restartMaster)
	f.step("restart ZooKeeper", f.restartZooKeeper)
	f.down = true
	f.step("kill a promtsd", f.killPromtsd)
	f.step("restart a promtsd while there is no master", f.restartWithoutMaster)
	f.step("freeze a promtsd until its journal is taken over", f.freezePromtsd)
	f.down = false
	f.step("freeze a region server for a moment", f.freezeForAMoment)
	f.step("freeze a region server until it is given up", f.freezeForLong)
	f.stop()
	f.Check(t, remotetest.ResponseTypes...)
	f.Report(t, false)
	crowd.AssertTakenOver(t, f.promtsd)
	for _, p := range f.promtsd {
		p.Flush()
	}
	f.Check(t, remotetest.ResponseTypes...)
}

// faults is a cluster under load, and who breaks it.
type faults struct {
	*crowd.Crowd
	t       *testing.T
	stop    func()
	cluster *hbasetest.Cluster
	promtsd []*promtest.Process
	admin   *client.Client
	down    bool // a promtsd may be down
	steps   int
}

func newFaults(t *testing.T) *faults {
	f := &faults{t: t, cluster: hbasetest.Distributed(t, hbasetest.Config{})}
	var err error
	f.admin, err = client.New(client.Config{ZooKeeper: []string{f.cluster.ZK()}, ZNode: f.cluster.ZNode()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.admin.Close() }) // it always succeeds

	url := "hbase://" + f.cluster.ZK() + f.cluster.ZNode()
	initialise := promtest.PromtsdCommand(t, "init", "--store.url="+url, "--salt.width=1", "--salt.buckets=4")
	made, err := initialise.CombinedOutput()
	if err != nil {
		t.Fatalf("promtsd init: %v\n%s", err, made)
	}
	// The time-out is below the time after which HBase gives up a silent server, so that a frozen one shows as 503. One
	// promtsd holds samples until the test ends, the other stores them all the time.
	for _, hold := range []string{"5m", "1s"} {
		f.promtsd = append(f.promtsd, promtest.StartPromtsd(t, promtest.PromtsdConfig{
			StoreURL: url, Args: []string{"--hbase.timeout=4s", "--write.flush-interval=" + hold},
		}))
	}
	f.Crowd, f.stop = crowd.Start(t, crowd.Config{}, f.promtsd[0].URL(), f.promtsd[1].URL())
	f.GoesOn(t)
	f.Report(t, false)
	return f
}

// step breaks something; afterwards writes go on, and everything is there.
func (f *faults) step(name string, act func(t *testing.T)) {
	f.steps++
	passed := f.t.Run(name, func(t *testing.T) {
		act(t)
		f.GoesOn(t)
		f.Check(t, remotetest.ResponseTypes[f.steps%2])
		f.Report(t, f.down)
	})
	if !passed {
		f.t.FailNow() // what follows would say nothing
	}
}

// moveRegions moves every region of every table, even that of the table of regions, to the other server and back.
func (f *faults) moveRegions(t *testing.T) {
	for range 2 {
		for _, table := range []string{dataTable, "tsdb-uid", "tsdb-meta", "promtsd", "promtsd-exemplars", journalTable,
			regionTable} {
			for _, region := range f.regions(t, table) {
				f.move(t, region, f.other(region.Server.Addr()))
			}
		}
		f.GoesOn(t)
	}
}

// splitAndMerge splits the regions of the first two salt buckets between the crowd's two metrics, and makes one of the
// others.
func (f *faults) splitAndMerge(t *testing.T) {
	ctx := t.Context()
	for bucket := range 2 {
		region := f.regions(t, dataTable)[2*bucket] // the daughters of the first are before the second
		if err := f.admin.Split(ctx, region, []byte{byte(bucket), 0, 0, 2}); err != nil {
			t.Fatal(err)
		}
		f.GoesOn(t)
	}
	regions := f.regions(t, dataTable)
	if err := f.admin.Merge(ctx, regions[4], regions[5]); err != nil {
		t.Fatal(err)
	}
	if got := f.regions(t, dataTable); len(got) != 5 {
		t.Errorf("after two splits and a merge there are %d regions, want 5", len(got))
	}
}

// killRegionServer kills the one that has the table of regions, and half of the data.
func (f *faults) killRegionServer(t *testing.T) {
	f.spread(t)
	victim := f.serverOf(t, regionTable)
	victim.Kill()
	f.GoesOn(t)
	victim.Restart()
}

// restartMaster leaves the cluster without a master for a while, which nothing but the placing of regions needs.
func (f *faults) restartMaster(t *testing.T) {
	f.cluster.Master().Kill()
	f.GoesOn(t)
	f.cluster.Master().Restart()
}

// restartZooKeeper leaves the cluster without ZooKeeper for a while, which those who have found it do not need.
// Afterwards regions can be placed again.
func (f *faults) restartZooKeeper(t *testing.T) {
	f.cluster.ZooKeeper().Kill()
	f.GoesOn(t)
	f.cluster.ZooKeeper().Restart()
	f.spread(t)
}

// killPromtsd leaves everything to the other one for a while.
func (f *faults) killPromtsd(t *testing.T) {
	f.promtsd[0].Kill()
	f.GoesOn(t)
	f.promtsd[0].Restart()
}

// restartWithoutMaster is for one that finds all tables there, which nobody but the region servers has to tell it.
func (f *faults) restartWithoutMaster(t *testing.T) {
	f.cluster.Master().Kill()
	f.promtsd[0].Kill()
	f.promtsd[0].Restart()
	f.GoesOn(t)
	f.cluster.Master().Restart()
}

// freezePromtsd lets the other one take the journal over. The first finds that out when it runs on.
func (f *faults) freezePromtsd(t *testing.T) {
	before := crowd.TakenOver(f.promtsd[1])
	waiting := crowd.WaitingSeries(t, f.promtsd[0])
	f.promtsd[0].Pause()
	promtest.Until(t, "the journal is taken over", func(context.Context) error {
		if len(crowd.TakenOver(f.promtsd[1])) == len(before) {
			return errors.New("it is not")
		}
		return nil
	})
	crowd.RefusedWhenResumed(t, f.promtsd[0], waiting)
}

// freezeForAMoment freezes the region server that has the journal for longer than calls to it may take. Of any other
// one senders would notice nothing.
func (f *faults) freezeForAMoment(t *testing.T) {
	f.spread(t)
	victim := f.serverOf(t, journalTable)
	before := f.Refused()
	victim.Pause()
	promtest.Until(t, "senders notice the frozen region server", func(context.Context) error {
		if f.Refused() == before {
			return errors.New("no write was answered 503")
		}
		return nil
	})
	victim.Resume()
}

// freezeForLong freezes a region server until the master has given its regions to the other. Writes go on while it is
// frozen. When it wakes up it does no harm, and ends.
func (f *faults) freezeForLong(t *testing.T) {
	victim := f.serverOf(t, regionTable)
	victim.Pause()
	f.cluster.Master().AwaitLog("Processing expiration of " + strings.ReplaceAll(victim.Addr(), ":", ","))
	f.GoesOn(t)
	victim.Resume()
	victim.AwaitEnd()
	victim.Restart()
}

// regions returns those of a table, with their servers.
func (f *faults) regions(t *testing.T, table string) (regions []*client.Region) {
	t.Helper()
	promtest.Until(t, "regions of "+table+" have servers", func(ctx context.Context) (err error) {
		if regions, err = f.admin.Regions(ctx, table); err != nil {
			return err
		}
		for _, region := range regions {
			if region.Server.Host == "" {
				return fmt.Errorf("region %s has none", region.Encoded())
			}
		}
		return nil
	})
	return regions
}

// other is the address of the region server that does not have addr.
func (f *faults) other(addr string) string {
	for _, server := range f.cluster.RegionServers() {
		if server.Addr() != addr {
			return server.Addr()
		}
	}
	return ""
}

// move moves a region to the server at an address, if it is not there.
func (f *faults) move(t *testing.T, region *client.Region, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status, err := f.admin.Cluster(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range status.Live {
		if server.Addr() != to || region.Server == server {
			continue
		}
		if err := f.admin.Move(ctx, region, server); err != nil {
			t.Fatal(err)
		}
	}
}

// spread makes the regions of the data table alternate between the servers.
func (f *faults) spread(t *testing.T) {
	t.Helper()
	servers := f.cluster.RegionServers()
	for i, region := range f.regions(t, dataTable) {
		f.move(t, region, servers[i%len(servers)].Addr())
	}
}

// serverOf is the process that has the first region of a table.
func (f *faults) serverOf(t *testing.T, table string) *hbasetest.Process {
	t.Helper()
	addr := f.regions(t, table)[0].Server.Addr()
	for _, server := range f.cluster.RegionServers() {
		if server.Addr() == addr {
			return server
		}
	}
	t.Fatalf("no region server has the address %s", addr)
	return nil
}
