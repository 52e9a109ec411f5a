package hbasetest_test

import (
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

func TestDistributed_KeepsWhatItAcknowledgedThroughKills(t *testing.T) {
	// As long as a restart of ZooKeeper takes on a busy machine, or else the others would give up.
	cluster := hbasetest.Distributed(t, hbasetest.Config{Site: map[string]string{"zookeeper.session.timeout": "8000"}})
	cluster.CreateTables(hbasetest.Table{Name: "kept", Families: []string{"f"}, Splits: [][]byte{{'4'}, {'8'}, {'c'}}})
	want := cells(20_000)
	cluster.Put("kept", want)

	// One dies: the master takes note, and the other takes over.
	first, second := cluster.RegionServers()[0], cluster.RegionServers()[1]
	first.Kill()
	cluster.Master().AwaitLog("Processing expiration of " + host(first))
	assertCells(t, cluster.Scan("kept"), want)
	first.Restart()

	// All die, with all that they had not written to files yet.
	second.Kill()
	first.Kill()
	first.Start()
	second.Start()
	first.AwaitReady()
	second.AwaitReady()
	assertCells(t, cluster.Scan("kept"), want)

	// The others may go too, one after the other.
	cluster.Master().Kill()
	cluster.Master().Restart()
	cluster.ZooKeeper().Kill()
	cluster.ZooKeeper().Restart()
	second.Pause()
	cluster.Master().AwaitLog("Processing expiration of " + host(second))
	second.Resume()
	second.AwaitEnd()
	assertCells(t, cluster.Scan("kept"), want)
}

// host is how the master's log writes a region server: host,port,startcode.
func host(rs *hbasetest.Process) string { return strings.ReplaceAll(rs.Addr(), ":", ",") }
