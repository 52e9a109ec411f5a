package wire_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// seed adds all messages of the real HBase.
func seed(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.hex")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(golden(f, strings.TrimSuffix(filepath.Base(file), ".hex")))
	}
}

// FuzzMessages gives all decoders arbitrary bytes; none may panic. What parses must survive being encoded again.
func FuzzMessages(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []interface {
			wire.Message
			Parse([]byte) error
		}{
			new(wire.ConnectionHeader), new(wire.RequestHeader),
			new(wire.TableName), new(wire.ServerName), new(wire.RegionInfo), new(wire.RegionLocation),
			new(wire.TableState),
			new(wire.Column), new(wire.Result), new(wire.Mutation), new(wire.MutateResponse), new(wire.Scan),
			new(wire.ScanRequest), new(wire.ScanResponse), new(wire.FamilySchema), new(wire.TableSchema),
			new(wire.ClusterStatus),
		} {
			if m.Parse(b) != nil {
				continue
			}
			once := m.AppendTo(nil)
			_ = m.Parse(once) // an empty name was not required of b, say; but a second encoding is the same
			if twice := m.AppendTo(nil); m.Parse(twice) == nil && !bytes.Equal(once, twice) {
				t.Errorf("%T of %x: encoded %x, then %x", m, b, once, twice)
			}
		}
		var request wire.MutateRequest
		_ = request.Parse(b)
		if c := request.Condition; c != nil && c.Comparator != nil {
			_ = c.Comparator.(wire.RawComparator).Value()
		}
		_ = new(wire.ResponseHeader).Parse(b) // exceptions keep one line, so they do not survive
		_ = new(wire.Exception).Parse(b)
		_ = new(wire.ProcedureResult).Parse(b)
		_ = new(wire.Get).Parse(b)
		_ = new(wire.FlushRegionResponse).Parse(b)
		_, _, _ = wire.ParseGetRequest(b)
		_, _ = wire.ParseRegionSpecifier(b)
		_, _ = wire.ParseGetResponse(b)
		_, _, _ = wire.ParseProcedureID(b)
		_, _ = wire.ParseGetClusterIDResponse(b)
		_, _ = wire.ParseGetActiveMasterResponse(b)
		_, _ = wire.ParseGetMetaRegionLocationsResponse(b)
		_, _ = wire.ParseGetBootstrapNodesResponse(b)
		_, _ = wire.ParseGetTableNamesResponse(b)
		_, _ = wire.ParseGetTableDescriptorsResponse(b)
		_, _ = wire.ParseGetTableStateResponse(b)
		_, _ = wire.ParseGetClusterStatusResponse(b)
		_, _ = wire.ParseSetBalancerResponse(b)
	})
}

// FuzzFrames takes arbitrary frames apart.
func FuzzFrames(f *testing.F) {
	f.Add(wire.AppendResponse(nil, wire.ResponseHeader{CallID: 1}, []byte("result"), []byte("cells"))[4:])
	f.Add(wire.AppendResponse(nil, wire.ResponseHeader{CallID: 1, Exception: &wire.Exception{Class: "c"}}, nil,
		nil)[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, result, cells, err := wire.ParseResponse(b); err == nil && h.Exception == nil {
			again := wire.AppendResponse(nil, h, result, cells)[4:]
			if h2, result2, cells2, err := wire.ParseResponse(again); err != nil || h2 != h ||
				!bytes.Equal(result, result2) || !bytes.Equal(cells, cells2) {
				t.Errorf("%x: encoded again %x: %v", b, again, err)
			}
		}
		_, _, _, _ = wire.ParseRequest(b)
		_, _ = wire.ParsePreamble(b)
	})
}

// FuzzNodes parses arbitrary data of ZooKeeper and of hbase:meta.
func FuzzNodes(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = wire.ParseMetaNode(b)
		_, _ = wire.ParseMasterNode(b)
		_, _ = wire.ParseIDNode(b)
		_, _ = wire.ParseMetaServer(b, b)
		_ = wire.ParseZKConnected(b)
		if reply, err := wire.ParseZKReply(b); err == nil {
			_, _ = reply.Data()
		}
		if info, err := wire.ParseStoredRegionInfo(b); err == nil && wire.EncodedName(info.Name()) == "" {
			t.Errorf("%+v: no encoded name in %q", info, info.Name())
		}
	})
}

// FuzzMulti walks arbitrary requests and responses.
func FuzzMulti(f *testing.F) {
	seed(f)
	var batch wire.MutationBatch
	batch.Put([]byte("r"), "t", []byte("q"), 1, []byte("v"))
	f.Add(wire.AppendGetAction(batch.AppendRegionAction(nil, []byte("region"), wire.TableDurability), 1, []byte("r"),
		nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, entries := wire.NewMultiResults(b), 0
		for all.Next() {
			if all.Index != wire.WholeRegion {
				entries++
			}
			if all.Exception != nil {
				_, _ = all.Exception.MovedTo()
				_ = all.Exception.ThrottledFor()
			}
		}
		if all.Err() == nil && all.Answered() != entries {
			t.Errorf("answered %d, walked %d", all.Answered(), entries)
		}
		failures := wire.NewMultiResults(b)
		for failures.NextFailure() {
			if failures.Exception == nil {
				t.Error("a failure without an exception")
			}
		}
		actions := wire.NewMultiActions(b)
		for actions.Next() {
			if (actions.Mutation == nil) == (actions.Get == nil) && actions.Mutation == nil {
				t.Error("an action that is nothing")
			}
		}
	})
}

// FuzzCells walks arbitrary cell blocks; the cells, encoded again, are the same.
func FuzzCells(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		it := wire.NewCellIter(b)
		for it.Next() {
			c := it.Cell
			block := wire.AppendCell(nil, c.Row, string(c.Family), c.Qualifier, c.Timestamp, c.Type, c.Value)
			again := wire.NewCellIter(block)
			if !again.Next() || !bytes.Equal(again.Cell.Row, c.Row) || !bytes.Equal(again.Cell.Value, c.Value) ||
				!bytes.Equal(again.Cell.Qualifier, c.Qualifier) || again.Cell.Timestamp != c.Timestamp {
				t.Errorf("cell %d of %x: got %+v again, want %+v", it.Count(), b, again.Cell, c)
			}
		}
		skip := wire.NewCellIter(b)
		if block, ok := skip.Skip(it.Count()); !ok || len(block) != len(b)-len(it.Rest()) || skip.Count() != it.Count() {
			t.Errorf("%x: got over %d cells of %d bytes, want %d of %d", b, skip.Count(), len(block), it.Count(),
				len(b)-len(it.Rest()))
		}
		if _, ok := skip.Skip(1); ok && it.Err() == nil {
			t.Errorf("%x: got over a cell behind the last one", b)
		}
	})
}

// FuzzDecompress inflates arbitrary bytes, within a limit.
func FuzzDecompress(f *testing.F) {
	for c := range wire.Snappy + 1 {
		b, err := c.Compress(nil, []byte("some text, some text"), bytes.Repeat([]byte{1}, 300_000))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(c), b)
	}
	f.Fuzz(func(t *testing.T, c byte, b []byte) {
		const limit = 1 << 20
		plain, err := wire.Compression(c%4).Decompress([]byte("front"), b, limit)
		if err == nil && (len(plain) > limit+5 || string(plain[:5]) != "front") {
			t.Errorf("got %d bytes beyond the limit of %d", len(plain), limit)
		}
	})
}
