package promstore_test

import (
	"encoding/binary"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/storetest"
)

// hbaseAddress is set to where an HBase is, as host:port/znode of its ZooKeeper, which is the test's own.
const hbaseAddress = "PROMTSD_TEST_BUILTIN_HBASE"

// startHBase starts a real HBase for the process that runs the built-in tests.
func startHBase(t *testing.T) {
	cluster := hbasetest.Standalone(t, hbasetest.Config{})
	t.Setenv(hbaseAddress, cluster.ZK()+cluster.ZNode())
}

// hbaseStores gives stores on that HBase, each without any row.
func hbaseStores() func(testing.TB) store.Store {
	calls := uint32(0)
	return func(t testing.TB) store.Store {
		zooKeeper, znode, _ := strings.Cut(os.Getenv(hbaseAddress), "/")
		st, err := hbase.Open(hbase.Config{
			Client: client.Config{ZooKeeper: []string{zooKeeper}, ZNode: "/" + znode}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		calls++
		return storetest.Prefixed(st, string(binary.BigEndian.AppendUint32(nil, calls)))
	}
}
