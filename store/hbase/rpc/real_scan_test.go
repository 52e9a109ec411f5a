package rpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// scanRows reads a whole region, rows rows a call, and gives the keys as they came.
func (r *real) scanRows(region []byte, scan *wire.Scan, rows, limit uint32) (keys []string) {
	r.Helper()
	request := wire.ScanRequest{Region: region, Scan: scan, Rows: rows, LimitOfRows: limit}
	var answer wire.ScanResponse
	for seq := uint64(0); ; seq++ {
		response := r.call(r.client, wire.MethodScan, &request)
		if err := answer.Parse(response.Param); err != nil {
			r.Fatal(err)
		}
		cells := wire.NewCellIter(response.Cells)
		for _, result := range answer.Results {
			for i := range result.Cells {
				if !cells.Next() {
					r.Fatalf("scan: cell %d of %d: %v", i, result.Cells, cells.Err())
				}
			}
			if key := string(cells.Cell.Row); len(keys) == 0 || keys[len(keys)-1] != key {
				keys = append(keys, key)
			}
		}
		if len(cells.Rest()) != 0 || answer.Embedded != 0 {
			r.Fatalf("scan: %d bytes left, %d embedded results", len(cells.Rest()), answer.Embedded)
		}
		response.Release()
		if !answer.More || !answer.MoreInRegion {
			return keys
		}
		if request.Scan != nil {
			request = wire.ScanRequest{ScannerID: answer.ScannerID, Rows: rows, LimitOfRows: limit}
			if renewed := r.call(r.client, wire.MethodScan,
				&wire.ScanRequest{ScannerID: answer.ScannerID, Renew: true}); renewed.Cells != nil {
				r.Errorf("renew answered with cells")
			}
		}
		request.CallSeq = seq + 1 // the renewal was 0
	}
}

func (r *real) scan() {
	all := rowKeys()
	if got := r.scanRows(r.region("h"), &wire.Scan{}, 7, 0); !slices.Equal(got, all[20:40]) {
		r.Errorf("scan: got %q", got)
	}
	down := &wire.Scan{Reversed: true, Start: []byte(all[30]), StartExclusive: true, Stop: []byte(all[25]),
		StopInclusive: true,
		ReadType:      wire.ReadPositional, NoCache: true}
	want := slices.Clone(all[25:30])
	slices.Reverse(want)
	if got := r.scanRows(r.region("h"), down, 100, 0); !slices.Equal(got, want) {
		r.Errorf("reversed scan: got %q, want %q", got, want)
	}
	if got := r.scanRows(r.region("h"), &wire.Scan{}, 2, 3); len(got) < 3 || !slices.Equal(got[:3], all[20:23]) {
		r.Errorf("limited scan: got %q", got)
	}

	open := &wire.ScanRequest{Region: r.region("h"), Scan: &wire.Scan{}, Rows: 2}
	response := r.call(r.client, wire.MethodScan, open)
	var answer wire.ScanResponse
	if err := answer.Parse(response.Param); err != nil || answer.Lease == 0 || answer.ReadPoint == 0 {
		r.Errorf("open: got %+v, %v", answer, err)
	}
	r.save("scan_open_response", response.Param)
	r.save("scan_open_cells", response.Cells)
	r.call(r.client, wire.MethodScan, &wire.ScanRequest{ScannerID: answer.ScannerID, Close: true})
	next := &wire.ScanRequest{ScannerID: answer.ScannerID, Rows: 2}
	r.wantException(wire.MethodScan, next.AppendTo(nil), "UnknownScannerException", "OutOfOrderScannerNextException")

	response = r.call(r.client, wire.MethodScan, open)
	if err := answer.Parse(response.Param); err != nil {
		r.Fatal(err)
	}
	next.ScannerID = answer.ScannerID
	r.call(r.client, wire.MethodScan, next)
	r.wantException(wire.MethodScan, next.AppendTo(nil), "OutOfOrderScannerNextException") // the number is used up
}

// wantException makes a call that must fail with an exception of one of the classes.
func (r *real) wantException(method string, param []byte, classes ...string) {
	r.Helper()
	_, err := r.try(r.client, method, param)
	var exception *wire.Exception
	if !errors.As(err, &exception) || !slices.Contains(classes, exception.Simple()) || !rpc.Sent(err) {
		r.Errorf("call %s: got %v, want one of %q", method, err, classes)
		return
	}
	r.Logf("as wanted: %v (do not retry: %v)", err, exception.DoNotRetry)
}

func (r *real) scanInParts() {
	var batch wire.MutationBatch
	row := []byte("b-wide")
	for q := range 50 {
		batch.Put(row, family, []byte{byte(q)}, 1000, bytes.Repeat([]byte{'v'}, 1000))
	}
	r.multi(r.client, [][]byte{r.region("b")}, []*wire.MutationBatch{&batch})
	request := wire.ScanRequest{Region: r.region("b"), Rows: 100,
		Scan: &wire.Scan{Start: row, Stop: row, StopInclusive: true, MaxResultSize: 8 << 10}}
	var answer wire.ScanResponse
	cells, partials, last := 0, 0, false
	for {
		response := r.call(r.client, wire.MethodScan, &request)
		if err := answer.Parse(response.Param); err != nil {
			r.Fatal(err)
		}
		for _, result := range answer.Results {
			cells += result.Cells
			if last = result.Partial; last {
				partials++
			}
		}
		if partials == 2 && request.Scan == nil {
			r.save("scan_partial_response", response.Param)
		}
		if !answer.More || !answer.MoreInRegion {
			break
		}
		if request.Scan != nil {
			request = wire.ScanRequest{ScannerID: answer.ScannerID, Rows: 100}
			continue
		}
		request.CallSeq++
	}
	if cells != 50 || partials < 4 || last {
		r.Errorf("got %d cells in %d parts, the last one marked partial: %v; want 50, some, false", cells, partials,
			last)
	}
}

func (r *real) filters() {
	all := rowKeys()
	region := r.region("h")
	some := []string{all[23]}
	for _, test := range []struct {
		name   string
		filter wire.Filter
		want   []string
	}{
		{"regex", wire.RowFilter{Op: wire.Equal, Comparator: wire.Regex("(?s)^h.\\Q003\xff\\E$")}, some},
		{"regex not", wire.RowFilter{Op: wire.NotEqual, Comparator: wire.Regex("[^3]\xff$")}, []string{all[23],
			all[33]}},
		{"prefix", wire.RowPrefix("h-003"), some},
		{"component", wire.RowFilter{Op: wire.Equal, Comparator: wire.BinaryComponent{Value: []byte("03"), Offset: 3}},
			some},
		{"fuzzy", wire.FuzzyRow{{Key: []byte("h-003"), Mask: []byte{0, 1, 1, 0, 0}}}, some},
		{"fuzzy, all fixed", wire.FuzzyRow{{Key: []byte("h-003"), Mask: make([]byte, 5)}}, some},
		{"ranges", wire.MultiRowRange{{Start: []byte("h-018\xff"), StartExclusive: true, Stop: []byte("o")},
			{Start: []byte("h-003"), Stop: []byte("h-004")}}, []string{all[23], all[39]}},
		{"all of", wire.AllOf{wire.RowPrefix("h-00"), wire.RowFilter{Op: wire.Less, Comparator: wire.Binary("h-002")}},
			all[20:22]},
		{"any of", wire.AnyOf{wire.RowPrefix("h-003"), wire.RowFilter{Op: wire.Less,
			Comparator: wire.BinaryPrefix("h-002")}},
			[]string{all[20], all[21], all[23]}},
		{"page", wire.Page(2), all[20:22]},
		{"value", wire.ValueFilter{Op: wire.Equal, Comparator: wire.Binary("23/1")}, some},
	} {
		r.Run(test.name, func(t *testing.T) {
			if got := r.on(t).scanRows(region, &wire.Scan{Filter: test.filter}, 100, 0); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	for _, test := range []struct {
		filter wire.Filter
		want   string
	}{
		{wire.FirstKeyOnly{}, fmt.Sprintf("%q 00=23/0", all[23])},
		{wire.KeyOnly{}, fmt.Sprintf("%q 00= 01= 02=", all[23])},
		{wire.ColumnRange{Min: []byte{0}, MinExclusive: true, Max: []byte{2}}, fmt.Sprintf("%q 01=23/1", all[23])},
		{wire.ColumnRange{Min: []byte{1}}, fmt.Sprintf("%q 01=23/1 02=23/2", all[23])},
		{wire.QualifierFilter{Op: wire.Equal, Comparator: wire.Binary{2}}, fmt.Sprintf("%q 02=23/2", all[23])},
	} {
		selection := (&wire.Selection{Filter: test.filter}).AppendTo(nil)
		response, err := r.try(r.client, wire.MethodGet, wire.AppendGetRequest(nil, region, []byte(all[23]), selection))
		if err != nil {
			r.Errorf("%T: %v", test.filter, err)
			continue
		}
		if got := cellsText(r.T, response.Cells); got != test.want {
			r.Errorf("%T: got %s, want %s", test.filter, got, test.want)
		}
	}
}
