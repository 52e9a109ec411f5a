package hbase_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/storetest"
)

var shared hbasetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

var _ store.Store = (*hbase.Store)(nil)

// open gives a store on the test binary's HBase, without any table.
func open(t testing.TB) store.Store {
	t.Helper()
	cluster := shared.Cluster(t)
	config := client.Config{ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tables, err := c.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	for _, table := range tables {
		g.Go(func() error {
			if err := c.DisableTable(ctx, table); err != nil {
				return err
			}
			return c.DeleteTable(ctx, table)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	st, err := hbase.Open(hbase.Config{Client: config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStore(t *testing.T) { storetest.Run(t, open) }

func TestStore_Model(t *testing.T) {
	// A case takes a second here, most of it for making tables; what stores have in common other stores try more often.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		t.Fatal(err)
	}
	storetest.Model(t, open)
}

func BenchmarkStore(b *testing.B) { storetest.Benchmark(b, open) }
