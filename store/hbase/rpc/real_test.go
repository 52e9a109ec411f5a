package rpc_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

var capture = flag.String("capture", "", "write messages of the real HBase to this `directory`: ../wire/testdata")

// real is the real HBase of a test with a table of three regions, up to "g", up to "p", and the rest.
type real struct {
	*testing.T
	cluster *hbasetest.Cluster
	client  *rpc.Conn
	master  *rpc.Conn
	admin   *rpc.Conn
	table   wire.TableName
	regions []wire.RegionLocation
}

const family = "t"

// TestRealHBase runs the messages of package wire against the server they are meant for.
func TestRealHBase(t *testing.T) {
	cluster := hbasetest.Standalone(t, hbasetest.Config{})
	r := &real{T: t, cluster: cluster, table: wire.ParseTableName("rpc-test")}
	server := cluster.RegionServers()[0].Addr()
	r.client = dialReal(t, server, wire.ClientService, wire.NoCompression)
	r.admin = dialReal(t, server, wire.AdminService, wire.NoCompression)
	r.master = dialReal(t, cluster.Master().Addr(), wire.MasterService, wire.NoCompression)
	r.createTable()
	r.locate()
	t.Run("registry", func(t *testing.T) { r.on(t).registry() })
	t.Run("zookeeper", func(t *testing.T) { r.on(t).zooKeeper() })
	t.Run("puts", func(t *testing.T) { r.on(t).puts() })
	t.Run("gets", func(t *testing.T) { r.on(t).gets() })
	t.Run("scan", func(t *testing.T) { r.on(t).scan() })
	t.Run("scan in parts", func(t *testing.T) { r.on(t).scanInParts() })
	t.Run("filters", func(t *testing.T) { r.on(t).filters() })
	t.Run("increment", func(t *testing.T) { r.on(t).increment() })
	t.Run("check and put", func(t *testing.T) { r.on(t).checkAndPut() })
	t.Run("delete", func(t *testing.T) { r.on(t).delete() })
	t.Run("failures of a multi", func(t *testing.T) { r.on(t).multiFailures() })
	t.Run("compression", func(t *testing.T) { r.on(t).compression() })
	t.Run("refusals", func(t *testing.T) { r.on(t).refusals() })
	t.Run("table admin", func(t *testing.T) { r.on(t).tableAdmin() })
	t.Run("region admin", func(t *testing.T) { r.on(t).regionAdmin() })
	t.Run("cluster admin", func(t *testing.T) { r.on(t).clusterAdmin() })
}

func (r *real) on(t *testing.T) *real {
	sub := *r
	sub.T = t
	return &sub
}

func dialReal(t *testing.T, addr, service string, compression wire.Compression) *rpc.Conn {
	t.Helper()
	c, err := rpc.Dial(t.Context(), rpc.Config{Addr: addr, Service: service, User: "test", Compression: compression})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// call makes a call that must succeed.
func (r *real) call(c *rpc.Conn, method string, param wire.Message, cells ...[]byte) *rpc.Response {
	r.Helper()
	response, err := r.try(c, method, param.AppendTo(nil), cells...)
	if err != nil {
		r.Fatal(err)
	}
	return response
}

func (r *real) try(c *rpc.Conn, method string, param []byte, cells ...[]byte) (*rpc.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	return c.Call(ctx, &rpc.Request{Method: method, Param: [][]byte{param}, Cells: cells})
}

// save keeps a message for the tests of package wire.
func (r *real) save(name string, b []byte) {
	if *capture == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*capture, name+".hex"), []byte(hex.EncodeToString(b)+"\n"),
		0o644); err != nil {
		r.Fatal(err)
	}
}

// await waits for a procedure of the master.
func (r *real) await(started *rpc.Response) {
	r.Helper()
	id, ok, err := wire.ParseProcedureID(started.Param)
	if err != nil || !ok {
		r.Fatalf("procedure id: got %v, %v", ok, err)
	}
	for {
		got := r.call(r.master, wire.MethodGetProcedureResult, &wire.ProcedureRequest{ID: id})
		var result wire.ProcedureResult
		if err := result.Parse(got.Param); err != nil {
			r.Fatal(err)
		}
		if result.Exception != nil {
			r.Fatalf("procedure %d: %v", id, result.Exception)
		}
		if result.State == wire.ProcedureFinished {
			r.save("procedure_result", got.Param)
			return
		}
		time.Sleep(20 * time.Millisecond) // the master offers no other way
	}
}

func (r *real) createTable() {
	r.Helper()
	r.await(r.call(r.master, wire.MethodCreateTable, &wire.CreateTableRequest{
		Schema: wire.TableSchema{Name: r.table, Families: []wire.FamilySchema{{
			Name: family,
			Attributes: []wire.Attribute{
				{Name: "VERSIONS", Value: "1"}, {Name: "BLOOMFILTER", Value: "ROW"}, {Name: "TTL", Value: "2147483647"},
				{Name: "DATA_BLOCK_ENCODING", Value: "FAST_DIFF"},
			},
		}}},
		Splits: [][]byte{[]byte("g"), []byte("p")},
		Nonce:  wire.Nonce{Group: 7, Value: 8},
	}))
}

// locate fills regions by a scan of hbase:meta, which is on the same server here.
func (r *real) locate() {
	r.Helper()
	start, stop := wire.MetaTableRange(r.table)
	response := r.call(r.client, wire.MethodScan, &wire.ScanRequest{
		Region: []byte(wire.MetaRegionName), Rows: 100, Close: true,
		Scan: &wire.Scan{Start: start, Stop: stop, Columns: []wire.Column{{Family: wire.MetaFamily}}},
	})
	r.save("meta_scan_response", response.Param)
	r.save("meta_scan_cells", response.Cells)
	r.regions = nil
	var location wire.RegionLocation
	var address []byte
	cells := wire.NewCellIter(response.Cells)
	for cells.Next() {
		switch c := cells.Cell; string(c.Qualifier) {
		case wire.MetaRegionInfo:
			info, err := wire.ParseStoredRegionInfo(c.Value)
			if err != nil {
				r.Fatal(err)
			}
			if name := info.Name(); !bytes.Equal(name, c.Row) {
				r.Fatalf("region name: got %q, want %q", name, c.Row)
			}
			location = wire.RegionLocation{Region: info}
		case wire.MetaServer:
			address = c.Value
		case wire.MetaServerStartCode:
			server, err := wire.ParseMetaServer(address, c.Value)
			if err != nil {
				r.Fatal(err)
			}
			location.Server = server
			if !location.Region.Split && !location.Region.Offline {
				r.regions = append(r.regions, location)
			}
		}
	}
	if err := cells.Err(); err != nil {
		r.Fatal(err)
	}
}

// region is the name of the region that holds row.
func (r *real) region(row string) []byte {
	for i := len(r.regions) - 1; i >= 0; i-- {
		if string(r.regions[i].Region.StartKey) <= row {
			return r.regions[i].Region.Name()
		}
	}
	r.Fatalf("no region for %q in %v", row, r.regions)
	return nil
}

func (r *real) registry() {
	for _, addr := range []string{r.cluster.Master().Addr(), r.client.Addr()} {
		c := dialReal(r.T, addr, wire.ClientMetaService, wire.NoCompression)
		b := r.call(c, wire.MethodGetClusterID, wire.Empty{}).Param
		id, err := wire.ParseGetClusterIDResponse(b)
		if err != nil || len(id) != 36 {
			r.Errorf("cluster id of %s: got %q, %v", addr, id, err)
		}
		r.save("cluster_id", b)
		b = r.call(c, wire.MethodGetActiveMaster, wire.Empty{}).Param
		master, err := wire.ParseGetActiveMasterResponse(b)
		if err != nil || !sameAddr(master.Addr(), r.cluster.Master().Addr()) {
			r.Errorf("active master: got %v, %v, want %s", master, err, r.cluster.Master().Addr())
		}
		r.save("active_master", b)
		b = r.call(c, wire.MethodGetMetaRegionLocations, wire.Empty{}).Param
		locations, err := wire.ParseGetMetaRegionLocationsResponse(b)
		if err != nil || len(locations) != 1 || string(locations[0].Region.Name()) != wire.MetaRegionName ||
			!sameAddr(locations[0].Server.Addr(), r.client.Addr()) {
			r.Errorf("meta locations: got %+v, %v", locations, err)
		}
		r.save("meta_region_locations", b)
		b = r.call(c, wire.MethodGetBootstrapNodes, wire.Empty{}).Param
		nodes, err := wire.ParseGetBootstrapNodesResponse(b)
		if err != nil || len(nodes) > 1 {
			r.Errorf("bootstrap nodes: got %v, %v", nodes, err)
		}
	}
}

// sameAddr compares ports: a server's name may be localhost where its address is 127.0.0.1.
func sameAddr(a, b string) bool {
	_, x, _ := net.SplitHostPort(a)
	_, y, _ := net.SplitHostPort(b)
	return x == y && x != ""
}

func (r *real) zooKeeper() {
	data := zkRead(r.T, r.cluster.ZK(), r.cluster.ZNode()+"/"+wire.NodeMeta)
	meta, err := wire.ParseMetaNode(data)
	if err != nil || meta.State != wire.RegionOpen || !sameAddr(meta.Server.Addr(), r.client.Addr()) {
		r.Errorf("meta node: got %+v, %v", meta, err)
	}
	r.save("node_meta", data)
	data = zkRead(r.T, r.cluster.ZK(), r.cluster.ZNode()+"/"+wire.NodeMaster)
	master, err := wire.ParseMasterNode(data)
	if err != nil || !sameAddr(master.Addr(), r.cluster.Master().Addr()) {
		r.Errorf("master node: got %v, %v", master, err)
	}
	r.save("node_master", data)
	data = zkRead(r.T, r.cluster.ZK(), r.cluster.ZNode()+"/"+wire.NodeID)
	if id, err := wire.ParseIDNode(data); err != nil || len(id) != 36 {
		r.Errorf("id node: got %q, %v", id, err)
	}
	r.save("node_id", data)
}

// zkRead reads one node of ZooKeeper.
func zkRead(t *testing.T, addr, path string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(request []byte) []byte {
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		answer, err := readFrame(conn)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if err := wire.ParseZKConnected(ask(wire.AppendZKConnect(nil, 10_000))); err != nil {
		t.Fatal(err)
	}
	reply, err := wire.ParseZKReply(ask(wire.AppendZKGet(nil, 7, path)))
	if err != nil || reply.XID != 7 || reply.Error != 0 {
		t.Fatalf("read %s: got %+v, %v", path, reply, err)
	}
	data, err := reply.Data()
	if err != nil {
		t.Fatal(err)
	}
	missing, err := wire.ParseZKReply(ask(wire.AppendZKGet(nil, 8, path+"-not")))
	if err != nil || missing.Error != wire.ZKNoNode {
		t.Errorf("read what is not there: got %+v, %v", missing, err)
	}
	if end, err := wire.ParseZKReply(ask(wire.AppendZKClose(nil, 9))); err != nil || end.XID != 9 || end.Error != 0 {
		t.Errorf("end of the session: got %+v, %v", end, err)
	}
	return data
}
