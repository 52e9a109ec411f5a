package wire_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestMessages_SurviveARoundTrip(t *testing.T) {
	table := wire.TableName{Namespace: "ns", Qualifier: "table"}
	server := wire.ServerName{Host: "host", Port: 65535, StartCode: 1 << 50}
	region := wire.RegionInfo{ID: 12, Table: table, StartKey: []byte("a,b"), EndKey: []byte{0xff}, Split: true,
		ReplicaID: 1}
	for _, m := range []interface {
		wire.Message
		Parse([]byte) error
	}{
		&wire.ConnectionHeader{User: "u", Service: "s", Codec: "c", Compressor: "z", Version: "2.6.4", Major: 2,
			Minor: 6},
		&wire.RequestHeader{CallID: wire.MaxCallID, Method: "Multi", CellBlock: 1 << 20, Priority: 100,
			Timeout: 60_000},
		&wire.ResponseHeader{CallID: 7, CellBlock: 300},
		&wire.ResponseHeader{CallID: wire.NoCall, Exception: &wire.Exception{Class: "a.b.C", Message: "why: so"}},
		&wire.Exception{Class: "a.b.C", Message: "m", Host: "h", Port: 60000, DoNotRetry: true, Overloaded: true},
		&table, &server, &region,
		&wire.RegionLocation{Region: region, Server: server, SeqNum: 9},
		&wire.Column{Family: "t", Qualifiers: [][]byte{{0}, {1, 2}}},
		&wire.Result{Cells: 3, Exists: true, Partial: true, Stale: true},
		&wire.Mutation{Row: []byte("r"), Type: wire.Increment, Cells: 1, Durability: wire.AsyncWAL, Nonce: 1 << 63,
			NoResult: true},
		&wire.MutateResponse{Result: wire.Result{Cells: 1}, Processed: true},
		&wire.MutateRequest{Region: []byte("region"), NonceGroup: 4, Mutation: wire.Mutation{Type: wire.Put, Cells: 1},
			Condition: &wire.Condition{Row: []byte("r"), Family: "f", Qualifier: []byte("q"), Op: wire.Equal,
				Comparator: wire.RawComparator{Class: "NullComparator", Body: []byte{}}}},
		&wire.Scan{Columns: []wire.Column{{Family: "t"}}, Start: []byte("a"), StartExclusive: true, Stop: []byte("b"),
			StopInclusive: true, TimeRange: wire.TimeRange{From: 1, To: 2}, MaxVersions: 3, NoCache: true, Batch: 4,
			MaxResultSize: 5, Reversed: true, ReadType: wire.ReadPositional, Cursor: true, ReadPoint: 6},
		&wire.ScanRequest{Region: []byte("region"), Scan: &wire.Scan{MaxVersions: 1}, Rows: 1, LimitOfRows: 2,
			Close: true},
		&wire.ScanRequest{ScannerID: 1 << 60, Rows: 100, CallSeq: 5, Renew: true},
		&wire.ScanResponse{Results: []wire.ScanResult{{Cells: 1}, {Cells: 200, Partial: true}}, ScannerID: 7,
			More:  true,
			Lease: 60_000, Heartbeat: true, Cursor: []byte("row"), ReadPoint: 8},
		&wire.TableSchema{Name: table, Attributes: []wire.Attribute{{Name: "DURABILITY", Value: "SYNC_WAL"}},
			Configuration: []wire.Attribute{{Name: "a", Value: "b"}},
			Families: []wire.FamilySchema{{Name: "t", Attributes: []wire.Attribute{{Name: "TTL", Value: "1"}},
				Configuration: []wire.Attribute{{Name: "c", Value: "d"}}}}},
		&wire.ProcedureResult{State: wire.ProcedureFinished,
			Exception: &wire.Exception{Class: "x.Y", Message: "text", DoNotRetry: true}},
		&wire.ClusterStatus{Live: []wire.ServerName{server}, Dead: []wire.ServerName{server, server}, Master: server,
			BalancerOn: true},
	} {
		b := m.AppendTo([]byte("front"))[5:]
		got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(interface{ Parse([]byte) error })
		if err := got.Parse(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: got %+v, %v, want %+v", m, got, err, m)
		}
		for cut := range b {
			_ = got.Parse(b[:cut]) // must not panic
		}
	}
}

func TestReader_NamesMessageAndField(t *testing.T) {
	var s wire.ServerName
	for _, test := range []struct {
		bytes string
		want  string
	}{
		{"\x0a\x05host",
			"ServerName: malformed bytes from the server: field is longer than the message (field 1, byte 2 of 6)"},
		{"\x10\xff", "varint cut off or too long (field 2"},
		{"\x10\x01", "host_name is missing"},
		{"\x0a\x01h\x10\xff\xff\xff\xff\x0f", "port out of range"},
		{"\x0b", "unknown wire type"},
		{"\x00\x00", "bad field number"},
		{"\x08\x01", "a number where bytes belong"},
	} {
		if err := s.Parse([]byte(test.bytes)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", test.bytes, err, test.want)
		}
	}
}

func TestEndMessage_LengthOfAnySize(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 129, 16383, 16384, 1 << 21} {
		content := bytes.Repeat([]byte{7}, n)
		b, mark := wire.BeginMessage([]byte("front"), 3)
		b = wire.EndMessage(append(b, content...), mark)
		if want := wire.AppendBytesField([]byte("front"), 3, content); !bytes.Equal(b, want) {
			t.Errorf("%d bytes: got %.20x, want %.20x", n, b, want)
		}
	}
}

func TestMutationBatch_IsWalkedAsItWasFilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			row, qualifier string
			typ            wire.MutationType
		}
		var want []entry
		var batch, copied wire.MutationBatch
		actions := 0
		for i := range rapid.IntRange(0, 300).Draw(t, "cells") {
			e := entry{rapid.SampledFrom([]string{"", "a", "b", "bb"}).Draw(t, "row"), fmt.Sprint(i),
				rapid.SampledFrom([]wire.MutationType{wire.Put, wire.Put, wire.Put, wire.Delete}).Draw(t, "type")}
			if n := len(want); n == 0 || want[n-1].row != e.row || want[n-1].typ != e.typ {
				actions++
			}
			want = append(want, e)
			if e.typ == wire.Put {
				batch.Put([]byte(e.row), "t", []byte(e.qualifier), int64(i), []byte("value"))
			} else {
				batch.Delete([]byte(e.row), "t", []byte(e.qualifier), int64(i))
			}
		}
		if batch.Actions() != actions || batch.Cells() != len(want) {
			t.Fatalf("got %d actions, %d cells, want %d, %d", batch.Actions(), batch.Cells(), actions, len(want))
		}
		for i := range batch.Actions() {
			copied.Add(batch.Action(i))
		}
		request := copied.AppendRegionAction(nil, []byte("region"), wire.SkipWAL)
		if again := batch.AppendRegionAction(nil, []byte("region"), wire.SkipWAL); !bytes.Equal(request, again) ||
			!bytes.Equal(batch.Block(), copied.Block()) {
			t.Fatalf("the copy of a batch differs from it")
		}
		var got []entry
		walk, cells := wire.NewMultiActions(request), wire.NewCellIter(copied.Block())
		for n := 0; walk.Next(); n++ {
			if walk.Index != n || string(walk.Name) != "region" || walk.Mutation.Durability != wire.SkipWAL {
				t.Fatalf("action %d: got index %d, %+v of %q", n, walk.Index, walk.Mutation, walk.Name)
			}
			for range walk.Mutation.Cells {
				cells.Next()
				got = append(got, entry{string(cells.Cell.Row), string(cells.Cell.Qualifier), walk.Mutation.Type})
			}
		}
		if walk.Err() != nil || cells.Err() != nil || len(cells.Rest()) != 0 || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, %v, %v, want %v", got, walk.Err(), cells.Err(), want)
		}
	})
}

func TestRegionName(t *testing.T) {
	for _, test := range []struct {
		info wire.RegionInfo
		want string
	}{
		{wire.RegionInfo{ID: 1, Table: wire.ParseTableName("hbase:meta")}, "hbase:meta,,1"},
		// The name a real HBase gave in its answer for a region of the same table, key and id.
		{wire.RegionInfo{ID: 1, Table: wire.ParseTableName("rpc-test")},
			"rpc-test,,1.bc3a5706241a7239d77d03f53be27062."},
	} {
		if got := string(test.info.Name()); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	for name, want := range map[string]string{
		"hbase:meta,,1": "1588230740", "t,,1.bc3a5706241a7239d77d03f53be27062.": "bc3a5706241a7239d77d03f53be27062",
		"t,,1": "",
	} {
		if got := wire.EncodedName([]byte(name)); got != want {
			t.Errorf("encoded name of %q: got %q, want %q", name, got, want)
		}
	}
}

func TestRegex_BytesAreChars(t *testing.T) {
	got := string(wire.Regex("a\x7f\x80\xff").AppendTo(nil))
	if want := "\x0a\x06a\x7f\u0080\u00ff\x10\x00\x1a\x0aISO-8859-1\x22\x04JAVA"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestException_MovedTo(t *testing.T) {
	text := "Region moved to: hostname=rs2.example port=16020 startCode=1795263250270. As of locationSeqNum=12."
	want := wire.ServerName{Host: "rs2.example", Port: 16020, StartCode: 1795263250270}
	e := wire.Exception{Class: "org.apache.hadoop.hbase.exceptions.RegionMovedException", Message: text}
	if got, ok := e.MovedTo(); !ok || got != want {
		t.Errorf("by its text: got %v, %v, want %v", got, ok, want)
	}
	e.Host, e.Port, e.Message = "rs3", 1, ""
	if got, ok := e.MovedTo(); !ok || got.Addr() != "rs3:1" {
		t.Errorf("by its fields: got %v, %v", got, ok)
	}
	if _, ok := (&wire.Exception{Class: "x.NotServingRegionException", Message: text}).MovedTo(); ok {
		t.Error("an exception of another kind names a place")
	}
}

func TestException_ThrottledFor(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"number of requests exceeded - wait 30ms":                     30 * time.Millisecond,
		"write size limit exceeded - wait 1sec, 2ms":                  1002 * time.Millisecond,
		"request size limit exceeded - wait 1mins, 2sec, 3ms":         time.Minute + 2003*time.Millisecond,
		"read size limit exceeded - wait 99999999999hrs, 1mins":       time.Hour,
		"read size limit exceeded - wait 9999999999999999999999999ms": 0,
		"no wait": 0,
	} {
		e := wire.Exception{Class: "org.apache.hadoop.hbase.quotas.RpcThrottlingException", Message: text}
		if got := e.ThrottledFor(); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
