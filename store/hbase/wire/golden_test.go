package wire_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// golden reads a message that a real HBase sent; see testdata/README.md.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden_Nodes(t *testing.T) {
	meta, err := wire.ParseMetaNode(golden(t, "node_meta"))
	if err != nil || meta.Server.Host != "localhost" || meta.Server.Port == 0 || meta.Server.StartCode == 0 ||
		meta.State != wire.RegionOpen {
		t.Errorf("meta: got %+v, %v", meta, err)
	}
	if again, err := wire.ParseMetaNode(wire.AppendMetaNode(nil, meta)); err != nil || again != meta {
		t.Errorf("meta again: got %+v, %v", again, err)
	}
	master, err := wire.ParseMasterNode(golden(t, "node_master"))
	if err != nil || master.Host != "localhost" {
		t.Errorf("master: got %v, %v", master, err)
	}
	if again, err := wire.ParseMasterNode(wire.AppendMasterNode(nil, master)); err != nil || again != master {
		t.Errorf("master again: got %v, %v", again, err)
	}
	id, err := wire.ParseIDNode(golden(t, "node_id"))
	if want, err2 := wire.ParseGetClusterIDResponse(golden(t, "cluster_id")); err != nil || err2 != nil || id != want {
		t.Errorf("id: got %q, %v; by the registry: %q, %v", id, err, want, err2)
	}
	if active, err := wire.ParseGetActiveMasterResponse(golden(t, "active_master")); err != nil || active != master {
		t.Errorf("active master: got %v, %v, want %v", active, err, master)
	}
}

func TestGolden_MetaRows(t *testing.T) {
	var regions []wire.RegionInfo
	rows, parents := 0, 0
	cells := wire.NewCellIter(golden(t, "meta_scan_cells"))
	for cells.Next() {
		c := cells.Cell
		if string(c.Qualifier) != wire.MetaRegionInfo {
			continue
		}
		info, err := wire.ParseStoredRegionInfo(c.Value)
		if err != nil {
			t.Fatal(err)
		}
		if name := info.Name(); !bytes.Equal(name, c.Row) {
			t.Errorf("name: got %q, want %q", name, c.Row)
		}
		if got := wire.AppendStoredRegionInfo(nil, &info); !bytes.Equal(got, c.Value) {
			t.Errorf("%s: encoded again:\n got %x\nwant %x", c.Row, got, c.Value)
		}
		if rows++; info.Split {
			parents++
			continue
		}
		regions = append(regions, info)
	}
	if parents != 1 {
		t.Errorf("regions that were split: got %d, want 1", parents)
	}
	var response wire.ScanResponse
	if err := response.Parse(golden(t, "meta_scan_response")); err != nil || len(response.Results) != rows ||
		response.MoreInRegion && response.More {
		t.Errorf("response: got %+v, %v, for %d regions", response, err, rows)
	}
	if cells.Err() != nil || len(regions) == 0 || len(regions[0].StartKey) != 0 {
		t.Fatalf("got %v, %v", regions, cells.Err())
	}
	for i := range regions[1:] {
		if !bytes.Equal(regions[i].EndKey, regions[i+1].StartKey) {
			t.Errorf("gap behind region %d: %+v", i, regions)
		}
	}
}

func TestGolden_MultiResponses(t *testing.T) {
	good := wire.NewMultiResults(golden(t, "multi_puts_response"))
	for good.NextFailure() {
		t.Errorf("puts: %d/%d: %v", good.Region, good.Index, good.Exception)
	}
	if good.Err() != nil || good.Answered() != 60 {
		t.Errorf("puts: answered %d, %v, want 60", good.Answered(), good.Err())
	}
	gets := wire.NewMultiResults(golden(t, "multi_gets_response"))
	n := 0
	for gets.Next() {
		if gets.Exception != nil || gets.Result != (wire.Result{Cells: 2}) {
			t.Errorf("gets: %d/%d: %+v, %v", gets.Region, gets.Index, gets.Result, gets.Exception)
		}
		n++
	}
	if gets.Err() != nil || n != 40 || gets.Answered() != 40 || gets.Region != 1 {
		t.Errorf("gets: got %d of region %d, %v, want 40 of 1", n, gets.Region, gets.Err())
	}
	var got []string
	bad := wire.NewMultiResults(golden(t, "multi_failures_response"))
	for bad.NextFailure() {
		got = append(got, bad.Exception.Simple())
		if strings.Contains(bad.Exception.Message, "\n") || bad.Exception.Message == "" {
			t.Errorf("message: got %q", bad.Exception.Message)
		}
	}
	want := "NotServingRegionException, NoSuchColumnFamilyException, FailedSanityCheckException"
	if text := strings.Join(got, ", "); text != want || bad.Err() != nil || bad.Answered() != 5 {
		t.Errorf("failures: got %s, answered %d, %v, want %s, 5", text, bad.Answered(), bad.Err(), want)
	}
}

func TestGolden_ResultsAndSchemas(t *testing.T) {
	if result, err := wire.ParseGetResponse(golden(t, "get_response")); err != nil ||
		result != (wire.Result{Cells: 2}) {
		t.Errorf("get: got %+v, %v", result, err)
	}
	var block []byte
	for it := wire.NewCellIter(golden(t, "get_cells")); it.Next(); {
		c := it.Cell
		block = wire.AppendCell(block, c.Row, string(c.Family), c.Qualifier, c.Timestamp, c.Type, c.Value)
	}
	if want := golden(t, "get_cells"); !bytes.Equal(block, want) {
		t.Errorf("cells encoded again:\n got %x\nwant %x", block, want)
	}
	var mutated wire.MutateResponse
	if err := mutated.Parse(golden(t, "increment_response")); err != nil || mutated.Result.Cells != 1 {
		t.Errorf("increment: got %+v, %v", mutated, err)
	}
	if err := mutated.Parse(golden(t, "check_and_put_response")); err != nil || !mutated.Processed {
		t.Errorf("check and put: got %+v, %v", mutated, err)
	}
	var scan wire.ScanResponse
	if err := scan.Parse(golden(t, "scan_open_response")); err != nil || len(scan.Results) != 2 ||
		scan.Lease != 60_000 ||
		scan.ScannerID == 0 || scan.ReadPoint == 0 || !scan.More || !scan.MoreInRegion {
		t.Errorf("scan: got %+v, %v", scan, err)
	}
	if err := scan.Parse(golden(t, "scan_partial_response")); err != nil || len(scan.Results) != 1 ||
		!scan.Results[0].Partial {
		t.Errorf("partial scan: got %+v, %v", scan, err)
	}
	schemas, err := wire.ParseGetTableDescriptorsResponse(golden(t, "table_descriptors"))
	if err != nil || len(schemas) != 1 || schemas[0].Name.String() != "rpc-test" || schemas[0].Families[0].Name != "t" {
		t.Fatalf("schema: got %+v, %v", schemas, err)
	}
	if encoding, ok := schemas[0].Families[0].Attribute("data_block_encoding"); !ok || encoding != "FAST_DIFF" {
		t.Errorf("encoding: got %q, %v", encoding, ok)
	}
	status, err := wire.ParseGetClusterStatusResponse(golden(t, "cluster_status"))
	if err != nil || len(status.Live) != 1 || status.Master.Host == "" || !status.BalancerOn {
		t.Errorf("status: got %+v, %v", status, err)
	}
	var procedure wire.ProcedureResult
	if err := procedure.Parse(golden(t, "procedure_result")); err != nil || procedure.State != wire.ProcedureFinished {
		t.Errorf("procedure: got %+v, %v", procedure, err)
	}
	locations, err := wire.ParseGetMetaRegionLocationsResponse(golden(t, "meta_region_locations"))
	if err != nil || len(locations) != 1 || string(locations[0].Region.Name()) != wire.MetaRegionName {
		t.Errorf("meta: got %+v, %v", locations, err)
	}
}
