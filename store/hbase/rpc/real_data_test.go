package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// multi sends batches, one for each region, in one call.
func (r *real) multi(c *rpc.Conn, regions [][]byte, batches []*wire.MutationBatch) *rpc.Response {
	r.Helper()
	var param []byte
	var cells [][]byte
	for i, b := range batches {
		param = b.AppendRegionAction(param, regions[i], wire.TableDurability)
		cells = append(cells, b.Block())
	}
	response, err := r.try(c, wire.MethodMulti, param, cells...)
	if err != nil {
		r.Fatal(err)
	}
	return response
}

// rowKeys are the rows that puts writes: 20 in each region, three cells a row, of which the last two are put apart.
func rowKeys() (rows []string) {
	for _, first := range []string{"a", "h", "z"} {
		for i := range 20 {
			rows = append(rows, fmt.Sprintf("%s-%03d\xff", first, i))
		}
	}
	return rows
}

func (r *real) puts() {
	batches := make(map[string]*wire.MutationBatch)
	for i, row := range rowKeys() {
		region := string(r.region(row))
		if batches[region] == nil {
			batches[region] = new(wire.MutationBatch)
		}
		for q := range 3 {
			batches[region].Put([]byte(row), family, []byte{byte(q)}, 1000, fmt.Appendf(nil, "%d/%d", i, q))
		}
	}
	var regions [][]byte
	var list []*wire.MutationBatch
	for region, b := range batches {
		if b.Actions() != 20 || b.Cells() != 60 {
			r.Errorf("batch: got %d actions, %d cells, want 20, 60", b.Actions(), b.Cells())
		}
		regions, list = append(regions, []byte(region)), append(list, b)
	}
	response := r.multi(r.client, regions, list)
	r.save("multi_puts_response", response.Param)
	results := wire.NewMultiResults(response.Param)
	for results.NextFailure() {
		r.Errorf("region %d action %d: %v", results.Region, results.Index, results.Exception)
	}
	if results.Err() != nil || results.Answered() != 60 {
		r.Errorf("results: answered %d of 60, %v", results.Answered(), results.Err())
	}
}

func (r *real) gets() {
	row := rowKeys()[25]
	selection := (&wire.Selection{Columns: []wire.Column{{Family: family, Qualifiers: [][]byte{{0},
		{2}}}}}).AppendTo(nil)
	response, err := r.try(r.client, wire.MethodGet, wire.AppendGetRequest(nil, r.region(row), []byte(row), selection))
	if err != nil {
		r.Fatal(err)
	}
	r.save("get_response", response.Param)
	r.save("get_cells", response.Cells)
	result, err := wire.ParseGetResponse(response.Param)
	if err != nil || result != (wire.Result{Cells: 2}) {
		r.Errorf("get: got %+v, %v, want 2 cells", result, err)
	}
	if got := cellsText(r.T, response.Cells); got != fmt.Sprintf("%q 00=25/0 02=25/2", row) {
		r.Errorf("get: got %s", got)
	}

	response, err = r.try(r.client, wire.MethodGet, wire.AppendGetRequest(nil, r.region("none"), []byte("none"), nil))
	if err != nil || len(response.Cells) != 0 {
		r.Errorf("get of no row: got %v, %d bytes", err, len(response.Cells))
	}

	var param []byte
	for _, region := range [][]byte{r.region("a"), r.region("z")} {
		var mark int
		param, mark = wire.BeginRegionAction(param, region, false)
		for i, row := range rowKeys() {
			if bytes.Equal(r.region(row), region) {
				param = wire.AppendGetAction(param, i, []byte(row), selection)
			}
		}
		param = wire.EndMessage(param, mark)
	}
	response, err = r.try(r.client, wire.MethodMulti, param)
	if err != nil {
		r.Fatal(err)
	}
	r.save("multi_gets_response", response.Param)
	results, cells, rows := wire.NewMultiResults(response.Param), wire.NewCellIter(response.Cells), 0
	for results.Next() {
		if results.Exception != nil || results.Result.Cells != 2 {
			r.Fatalf("multi-get: got %+v, %v", results.Result, results.Exception)
		}
		for range results.Result.Cells {
			if !cells.Next() || string(cells.Cell.Row) != rowKeys()[results.Index] {
				r.Fatalf("multi-get: index %d, row %q, %v", results.Index, cells.Cell.Row, cells.Err())
			}
		}
		rows++
	}
	if results.Err() != nil || rows != 40 || len(cells.Rest()) != 0 {
		r.Errorf("multi-get: got %d rows, %d bytes left, %v, want 40, 0", rows, len(cells.Rest()), results.Err())
	}
}

// cellsText writes the cells of one row.
func cellsText(t *testing.T, block []byte) string {
	t.Helper()
	var text string
	cells := wire.NewCellIter(block)
	for cells.Next() {
		if text == "" {
			text = fmt.Sprintf("%q", cells.Cell.Row)
		}
		text += fmt.Sprintf(" %x=%s", cells.Cell.Qualifier, cells.Cell.Value)
	}
	if err := cells.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}

func (r *real) increment() {
	row := []byte("c-counter")
	add := func(nonce uint64) uint64 {
		cell := wire.AppendCell(nil, row, family, []byte("n"), wire.LatestTimestamp, wire.CellPut, []byte{0, 0, 0, 0,
			0, 0, 0, 5})
		response := r.call(r.client, wire.MethodMutate, &wire.MutateRequest{
			Region: r.region("c"), NonceGroup: 99,
			Mutation: wire.Mutation{Row: row, Type: wire.Increment, Cells: 1, Nonce: nonce},
		}, cell)
		var answer wire.MutateResponse
		if err := answer.Parse(response.Param); err != nil {
			r.Fatal(err)
		}
		r.save("increment_response", response.Param)
		r.save("increment_cells", response.Cells)
		cells := wire.NewCellIter(response.Cells)
		if answer.Result.Cells != 1 || !cells.Next() {
			r.Fatalf("increment: got %+v, %v", answer, cells.Err())
		}
		return binary.BigEndian.Uint64(cells.Cell.Value)
	}
	if got := [3]uint64{add(1), add(1), add(2)}; got != [3]uint64{5, 5, 10} {
		r.Errorf("got %v, want 5, 5 again for the same nonce, 10", got)
	}
}

func (r *real) checkAndPut() {
	row := []byte("c-unique")
	put := func(op wire.CompareOp, c wire.Comparator, value string) bool {
		response := r.call(r.client, wire.MethodMutate, &wire.MutateRequest{
			Region: r.region("c"), Mutation: wire.Mutation{Type: wire.Put, Cells: 1},
			Condition: &wire.Condition{Row: row, Family: family, Qualifier: []byte("q"), Op: op, Comparator: c},
		}, wire.AppendCell(nil, row, family, []byte("q"), 1000, wire.CellPut, []byte(value)))
		var answer wire.MutateResponse
		if err := answer.Parse(response.Param); err != nil {
			r.Fatal(err)
		}
		r.save("check_and_put_response", response.Param)
		return answer.Processed
	}
	got := []bool{
		put(wire.Equal, wire.NullComparator{}, "5"), put(wire.Equal, wire.NullComparator{}, "6"),
		put(wire.Equal, wire.Binary("6"), "7"), put(wire.Less, wire.Binary("7"), "7"), put(wire.Equal,
			wire.Binary("5"), "8"),
	}
	if want := []bool{true, false, false, false, true}; !slices.Equal(got, want) {
		r.Errorf("processed: got %v, want %v", got, want)
	}
}

func (r *real) delete() {
	row := []byte("d-deleted")
	var batch wire.MutationBatch
	batch.Put(row, family, []byte("0"), 1000, []byte("x"))
	batch.Put(row, family, []byte("1"), 1000, []byte("y"))
	r.multi(r.client, [][]byte{r.region("d")}, []*wire.MutationBatch{&batch})
	batch.Reset()
	batch.Delete(row, family, []byte("0"), 1000)
	response := r.multi(r.client, [][]byte{r.region("d")}, []*wire.MutationBatch{&batch})
	results := wire.NewMultiResults(response.Param)
	if results.NextFailure() || results.Answered() != 1 {
		r.Errorf("delete: got %v, answered %d", results.Exception, results.Answered())
	}
	response, err := r.try(r.client, wire.MethodGet, wire.AppendGetRequest(nil, r.region("d"), row, nil))
	if err != nil {
		r.Fatal(err)
	}
	if got := cellsText(r.T, response.Cells); got != `"d-deleted" 31=y` {
		r.Errorf("after the delete: got %s", got)
	}
}

func (r *real) multiFailures() {
	var lost, here, outside wire.MutationBatch
	lost.Put([]byte("x1"), family, []byte("q"), 1000, []byte("v"))
	here.Put([]byte("e1"), family, []byte("q"), 1000, []byte("v"))
	here.Put([]byte("e2"), "nofamily", []byte("q"), 1000, []byte("v"))
	here.Put([]byte("e3"), family, []byte("q"), 1000, []byte("v"))
	outside.Put([]byte("i1"), family, []byte("q"), 1000, []byte("v"))
	outside.Put([]byte("e4"), family, []byte("q"), 1000, []byte("v"))
	gone := wire.RegionInfo{ID: 1, Table: r.table}
	response := r.multi(r.client, [][]byte{gone.Name(), r.region("e"), r.region("i")},
		[]*wire.MutationBatch{&lost, &here, &outside})
	r.save("multi_failures_response", response.Param)
	var got []string
	results := wire.NewMultiResults(response.Param)
	for results.NextFailure() {
		r.Logf("region %d, index %d: %v", results.Region, results.Index, results.Exception)
		got = append(got, fmt.Sprintf("%d/%d %s", results.Region, results.Index, results.Exception.Simple()))
	}
	want := []string{"0/-1 NotServingRegionException", "1/1 NoSuchColumnFamilyException", "2/1 FailedSanityCheckException"}
	if !slices.Equal(got, want) || results.Err() != nil || results.Answered() != 5 {
		r.Errorf("got %q, answered %d, %v; want %q, 5", got, results.Answered(), results.Err(), want)
	}
	get := wire.AppendGetRequest(nil, r.region("i"), []byte("e1"), nil)
	r.wantException(wire.MethodGet, get, "WrongRegionException")
	r.wantException(wire.MethodGet, wire.AppendGetRequest(nil, gone.Name(), []byte("e1"), nil),
		"NotServingRegionException")
}

func (r *real) compression() {
	for _, compression := range []wire.Compression{wire.Gzip, wire.Zlib, wire.Snappy} {
		c := dialReal(r.T, r.client.Addr(), wire.ClientService, compression)
		var batch wire.MutationBatch
		value := bytes.Repeat([]byte("0123456789"), 60_000) // more than a chunk of snappy
		row := []byte("f-" + compression.Class())
		batch.Put(row, family, []byte("0"), 1000, value)
		batch.Put(row, family, []byte("1"), 1000, []byte("small"))
		results := wire.NewMultiResults(r.multi(c, [][]byte{r.region("f")}, []*wire.MutationBatch{&batch}).Param)
		if results.NextFailure() || results.Answered() != 1 {
			r.Fatalf("%s: put: %v", compression.Class(), results.Exception)
		}
		response, err := r.try(c, wire.MethodGet, wire.AppendGetRequest(nil, r.region("f"), row, nil))
		if err != nil {
			r.Fatalf("%s: %v", compression.Class(), err)
		}
		cells := wire.NewCellIter(response.Cells)
		if !cells.Next() || !bytes.Equal(cells.Cell.Value, value) || !cells.Next() ||
			string(cells.Cell.Value) != "small" {
			r.Errorf("%s: got other cells back, %v", compression.Class(), cells.Err())
		}
		response.Release()
	}
}

func (r *real) refusals() {
	c := dialReal(r.T, r.client.Addr(), "NoSuchService", wire.NoCompression)
	if _, err := r.try(c, wire.MethodGet, nil); !errors.Is(err, rpc.ErrRefused) {
		r.Errorf("call of an unknown service: got %v, want ErrRefused", err)
	}
	if _, err := r.try(r.client, "NoSuchMethod", nil); err == nil {
		r.Errorf("call of an unknown method: got no error")
	} else {
		r.Logf("as wanted: %v", err)
	}
	short, cancel := context.WithDeadline(r.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := r.client.CallMessage(short, wire.MethodGet, wire.Empty{}); !errors.Is(err,
		context.DeadlineExceeded) || rpc.Sent(err) {
		r.Errorf("call after its deadline: got %v", err)
	}
}
