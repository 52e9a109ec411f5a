package hbase_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

// cluster says where the test binary's HBase is.
func cluster(t testing.TB) client.Config {
	t.Helper()
	cluster := shared.Cluster(t)
	return client.Config{ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()}
}

// open gives a store on the test binary's HBase, without any table.
func open(t testing.TB) store.Store {
	t.Helper()
	config := cluster(t)
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

func TestCreateTable_FitsItsUse(t *testing.T) {
	st := open(t)
	defer st.Close()
	c, err := client.New(cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, test := range []struct {
		log    bool
		family map[string]string
		split  string
	}{
		{false, map[string]string{
			"BLOOMFILTER": "ROW", "DATA_BLOCK_ENCODING": "FAST_DIFF", "BLOCKCACHE": "true", "VERSIONS": "1", "TTL": "3600",
			"COMPRESSION": "SNAPPY", // the best that a server without native libraries has
		}, ""},
		{true, map[string]string{
			"BLOOMFILTER": "NONE", "DATA_BLOCK_ENCODING": "NONE", "BLOCKCACHE": "false", "VERSIONS": "1", "TTL": "3600",
			"COMPRESSION": "NONE",
		}, "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy"},
	} {
		name := fmt.Sprintf("log-%t", test.log)
		made := store.Table{Name: name, Families: []string{"f"}, Log: test.log, Retention: time.Hour}
		if err := st.CreateTable(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		schema, err := c.Describe(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for attribute, want := range test.family {
			if got, _ := schema.Families[0].Attribute(attribute); got != want {
				t.Errorf("%s: family has %s=%q, want %q", name, attribute, got, want)
			}
		}
		if got, _ := schema.Attribute("SPLIT_POLICY"); got != test.split {
			t.Errorf("%s: table has the split policy %q, want %q", name, got, test.split)
		}
	}
}

func BenchmarkStore(b *testing.B) { storetest.Benchmark(b, open) }

// What the servers never take because of its size is told apart from what they do not take now.
func TestApply_CellsBeyondTheServersLimitAreTooLarge(t *testing.T) {
	st := open(t)
	defer st.Close()
	if err := st.CreateTable(t.Context(), store.Table{Name: "large", Families: []string{"f"}}); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]error{9 << 20: nil, 11 << 20: store.ErrTooLarge} {
		var b store.Batch
		b.Put("large", []byte("r"), "f", nil, 1, make([]byte, size))
		if err := st.Apply(t.Context(), &b); !errors.Is(err, want) {
			t.Errorf("a cell of %d bytes: got %v, want %v", size, err, want)
		}
	}
}
