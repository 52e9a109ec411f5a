package rpc_test

import (
	"errors"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

func (r *real) tableAdmin() {
	names, err := wire.ParseGetTableNamesResponse(r.call(r.master, wire.MethodGetTableNames,
		&wire.ListTablesRequest{}).Param)
	if err != nil || !slices.Contains(names, r.table) {
		r.Errorf("tables: got %v, %v", names, err)
	}
	b := r.call(r.master, wire.MethodGetTableDescriptors,
		&wire.DescribeTablesRequest{Tables: []wire.TableName{r.table}}).Param
	r.save("table_descriptors", b)
	schemas, err := wire.ParseGetTableDescriptorsResponse(b)
	if err != nil || len(schemas) != 1 || schemas[0].Name != r.table || len(schemas[0].Families) != 1 {
		r.Fatalf("describe: got %+v, %v", schemas, err)
	}
	if ttl, _ := schemas[0].Families[0].Attribute("ttl"); ttl != "2147483647" {
		r.Errorf("TTL: got %q of %+v", ttl, schemas[0])
	}
	schemas[0].Families[0].Attributes = append(schemas[0].Families[0].Attributes, wire.Attribute{Name: "BLOCKSIZE",
		Value: "32768"})
	r.await(r.call(r.master, wire.MethodModifyTable, &wire.ModifyTableRequest{Schema: schemas[0]}))
	r.wantState(wire.TableEnabled)
	if !strings.HasPrefix(r.cluster.Version(), "2.5.") {
		r.await(r.call(r.master, wire.MethodFlushTable, &wire.FlushTableRequest{Table: r.table}))
	}
	r.await(r.call(r.master, wire.MethodDisableTable, &wire.TableRequest{Table: r.table, Nonce: wire.Nonce{Group: 1,
		Value: 2}}))
	r.wantState(wire.TableDisabled)
	get := wire.AppendGetRequest(nil, r.region("a"), []byte("a"), nil)
	r.wantException(wire.MethodGet, get, "NotServingRegionException")
	r.await(r.call(r.master, wire.MethodEnableTable, &wire.TableRequest{Table: r.table}))
	r.wantState(wire.TableEnabled)

	_, err = r.try(r.master, wire.MethodGetTableState,
		(&wire.TableStateRequest{Table: wire.ParseTableName("none")}).AppendTo(nil))
	var exception *wire.Exception
	if !errors.As(err, &exception) || exception.Simple() != "TableNotFoundException" {
		r.Errorf("state of no table: got %v", err)
	}
	_, err = r.try(r.master, wire.MethodCreateTable, (&wire.CreateTableRequest{Schema: schemas[0]}).AppendTo(nil))
	if !errors.As(err, &exception) || exception.Simple() != "TableExistsException" {
		r.Errorf("create twice: got %v", err)
	}
}

func (r *real) wantState(want wire.TableState) {
	r.Helper()
	b := r.call(r.master, wire.MethodGetTableState, &wire.TableStateRequest{Table: r.table}).Param
	if got, err := wire.ParseGetTableStateResponse(b); err != nil || got != want {
		r.Errorf("table state: got %v, %v, want %v", got, err, want)
	}
}

func (r *real) regionAdmin() {
	r.locate()
	var flushed wire.FlushRegionResponse
	b := r.call(r.admin, wire.MethodFlushRegion, &wire.FlushRegionRequest{Region: r.region("h"), Family: family}).Param
	if err := flushed.Parse(b); err != nil || flushed.LastFlush == 0 {
		r.Errorf("flush: got %+v, %v", flushed, err)
	}
	r.call(r.admin, wire.MethodCompactRegion, &wire.CompactRegionRequest{Region: r.region("h"), Major: true})

	encoded := []string{wire.EncodedName(r.regions[0].Region.Name()), wire.EncodedName(r.regions[1].Region.Name())}
	r.await(r.call(r.master, wire.MethodMergeTableRegions, &wire.MergeRegionsRequest{Encoded: encoded}))
	r.locate()
	if len(r.regions) != 2 || string(r.regions[0].Region.EndKey) != "p" {
		r.Fatalf("after the merge: got %d regions", len(r.regions))
	}
	last := r.regions[1].Region
	r.await(r.call(r.master, wire.MethodSplitRegion, &wire.SplitRegionRequest{Region: last, Row: []byte("z-010")}))
	r.wantException(wire.MethodGet, wire.AppendGetRequest(nil, last.Name(), []byte("z"), nil), "NotServingRegionException")
	r.locate()
	if len(r.regions) != 3 || string(r.regions[2].Region.StartKey) != "z-010" {
		r.Fatalf("after the split: got %d regions", len(r.regions))
	}
	r.call(r.master, wire.MethodMoveRegion, &wire.MoveRegionRequest{
		Encoded: wire.EncodedName(r.regions[0].Region.Name()), To: r.regions[0].Server})
}

func (r *real) clusterAdmin() {
	b := r.call(r.master, wire.MethodGetClusterStatus, wire.ClusterStatusRequest{}).Param
	status, err := wire.ParseGetClusterStatusResponse(b)
	if err != nil || len(status.Live) != 1 || !sameAddr(status.Live[0].Addr(), r.client.Addr()) ||
		!sameAddr(status.Master.Addr(), r.master.Addr()) || !status.BalancerOn {
		r.Errorf("cluster status: got %+v, %v", status, err)
	}
	r.save("cluster_status", b)
	for _, want := range []bool{true, false} { // the state before
		b := r.call(r.master, wire.MethodSetBalancerRunning, &wire.SetBalancerRequest{On: !want}).Param
		if was, err := wire.ParseSetBalancerResponse(b); err != nil || was != want {
			r.Errorf("balancer: got %v, %v, want %v", was, err, want)
		}
	}
	r.await(r.call(r.master, wire.MethodDisableTable, &wire.TableRequest{Table: r.table}))
	r.await(r.call(r.master, wire.MethodDeleteTable, &wire.TableRequest{Table: r.table}))
}
