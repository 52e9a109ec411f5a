package client_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestAdmin(t *testing.T) {
	c := dial(t, nil)
	ctx := t.Context()
	name := table(t, c, "b")
	tables, err := c.Tables(ctx)
	if err != nil || !slices.Contains(tables, name) {
		t.Errorf("tables are %v, error %v; want %s among them", tables, err, name)
	}
	schema, err := c.Describe(ctx, name)
	if err != nil || len(schema.Families) != 1 {
		t.Fatalf("described as %+v, error %v", schema, err)
	}
	if versions, _ := schema.Families[0].Attribute("VERSIONS"); versions != "1" || schema.Name.String() != name {
		t.Errorf("described as %+v", schema)
	}
	if _, err := c.Describe(ctx, "nosuch"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("describe of no table: %v", err)
	}
	if _, err := c.TableState(ctx, "nosuch"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("state of no table: %v", err)
	}
	put(t, c, name, 0, 10)
	for _, err := range []error{c.FlushTable(ctx, name), c.CompactTable(ctx, name, true), c.DisableTable(ctx, name)} {
		if err != nil {
			t.Error(err)
		}
	}
	if state, err := c.TableState(ctx, name); state != wire.TableDisabled || err != nil {
		t.Errorf("state is %v, error %v", state, err)
	}
	if err := c.EnableTable(ctx, name); err != nil {
		t.Error(err)
	}
	assertRows(t, scan(t, c, client.Scan{Table: name}), wantRows(0, 10))
	if err := errors.Join(c.DisableTable(ctx, name), c.DeleteTable(ctx, name)); err != nil {
		t.Error(err)
	}
	if _, err := c.Regions(ctx, name); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("regions of a deleted table: %v", err)
	}
	cluster, err := c.Cluster(ctx)
	if err != nil || len(cluster.Live) != 1 || cluster.Master.Host == "" {
		t.Errorf("cluster is %+v, error %v", cluster, err)
	}
	if _, err := c.SetBalancer(ctx, false); err != nil {
		t.Error(err)
	}
	if was, err := c.SetBalancer(ctx, true); was || err != nil {
		t.Errorf("balancer was on: %t, error %v", was, err)
	}
}

func TestClient_FindsTheClusterWithoutZooKeeper(t *testing.T) {
	cluster := shared.Cluster(t)
	c := dial(t, func(cfg *client.Config) {
		cfg.ZooKeeper = nil
		cfg.Masters = []string{"127.0.0.1:1", cluster.Master().Addr()} // nobody is at the first
	})
	name := table(t, c, "000050")
	put(t, c, name, 0, 100)

	viaZK, err := client.New(client.Config{ZooKeeper: []string{"127.0.0.1:1", cluster.ZK()}, ZNode: cluster.ZNode()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = viaZK.Close() }()
	assertRows(t, scan(t, viaZK, client.Scan{Table: name}), wantRows(0, 100))
	one, err1 := c.ClusterID(t.Context())
	other, err2 := viaZK.ClusterID(t.Context())
	if one != other || one == "" || err1 != nil || err2 != nil {
		t.Errorf("cluster ids are %q and %q, errors %v and %v", one, other, err1, err2)
	}
}

func TestClient_CompressesCells(t *testing.T) {
	c := dial(t, func(cfg *client.Config) { cfg.Compression = wire.Gzip })
	name := table(t, c, "000050")
	put(t, c, name, 0, 1000)
	assertRows(t, scan(t, c, client.Scan{Table: name, Rows: 100}), wantRows(0, 1000))
}
