package client_test

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// put stores a cell.
func (f *fake) put(c *wire.Cell) {
	row := f.rows[string(c.Row)]
	if row == nil {
		row = make(map[string]string)
		f.rows[string(c.Row)] = row
	}
	row[string(c.Qualifier)] = string(c.Value)
	f.puts++
	f.written[[2]string{string(c.Row), string(c.Qualifier)}] = uint64(f.puts)
}

// appendRow appends the cells of a row to a block.
func (f *fake) appendRow(block []byte, row string) ([]byte, int) {
	qualifiers := slices.Sorted(maps.Keys(f.rows[row]))
	for _, q := range qualifiers {
		block = wire.AppendCell(block, []byte(row), "f", []byte(q), 1, wire.CellPut, []byte(f.rows[row][q]))
	}
	return block, len(qualifiers)
}

func (f *fake) multi(server int, param, cells []byte) (answer, block []byte) {
	it := wire.NewCellIter(cells)
	actions := wire.NewMultiActions(param)
	answer, mark := wire.BeginMessage(nil, 1)
	missing := false
	for actions.Next() {
		f.actions++
		region := f.region(server, actions.Name)
		missing = missing || region == nil
		var result wire.Result
		var failure *wire.Exception
		if m := actions.Mutation; m != nil {
			for range m.Cells {
				it.Next()
				switch {
				case missing:
				case !region.holds(string(it.Cell.Row)):
					failure = exception("exceptions.FailedSanityCheckException")
					failure.Message = "Requested row out of range for doMiniBatchMutation"
				case m.Type == wire.Delete:
					delete(f.rows[string(it.Cell.Row)], string(it.Cell.Qualifier))
				default:
					f.put(&it.Cell)
				}
			}
		} else if !missing {
			if region.holds(string(actions.Get.Row)) {
				block, result.Cells = f.appendRow(block, string(actions.Get.Row))
			} else {
				failure = exception("regionserver.WrongRegionException")
			}
		}
		if !missing {
			answer = wire.AppendMultiResult(answer, actions.Index, &result, failure)
		}
	}
	if missing {
		answer = wire.AppendRegionException(answer, f.absence(server))
	}
	return wire.EndMessage(answer, mark), block
}

func (f *fake) mutate(server int, param, cells []byte) (answer, block []byte, class string) {
	var request wire.MutateRequest
	if err := request.Parse(param); err != nil {
		f.t.Error(err)
	}
	if f.region(server, request.Region) == nil {
		return nil, nil, "NotServingRegionException"
	}
	it := wire.NewCellIter(cells)
	it.Next()
	stored, found := f.rows[string(it.Cell.Row)][string(it.Cell.Qualifier)]
	response := wire.MutateResponse{Processed: true}
	switch {
	case request.Mutation.Type == wire.Increment:
		sum, again := f.nonces[request.Mutation.Nonce]
		if !again { // else the answer is of the file that the cell was in before, as it may be in HBase
			if found {
				sum = int64(binary.BigEndian.Uint64([]byte(stored)))
			}
			if request.Mutation.Nonce != 0 {
				f.nonces[request.Mutation.Nonce] = sum
			}
			sum += int64(binary.BigEndian.Uint64(it.Cell.Value))
			it.Cell.Value = binary.BigEndian.AppendUint64(nil, uint64(sum))
			f.put(&it.Cell)
		}
		value := binary.BigEndian.AppendUint64(nil, uint64(sum))
		block = wire.AppendCell(nil, it.Cell.Row, "f", it.Cell.Qualifier, 1, wire.CellPut, value)
		response.Result.Cells = 1
	case request.Mutation.Type == wire.Delete:
		expected, _ := request.Condition.Comparator.(wire.RawComparator)
		if response.Processed = found && stored == string(expected.Value()); response.Processed {
			delete(f.rows[string(it.Cell.Row)], string(it.Cell.Qualifier))
		}
	case found: // it should be absent
		response.Processed = false
	default:
		f.put(&it.Cell)
	}
	return response.AppendTo(nil), block, ""
}

// fakeScanner is an open scanner: the cells to come, as (row, cell block of one cell).
type fakeScanner struct {
	seq   uint64
	cells []fakeCell
}

type fakeCell struct {
	row  string
	cell []byte
}

func (f *fake) scan(server int, param []byte) (answer, block []byte, class string) {
	var request wire.ScanRequest
	if err := request.Parse(param); err != nil {
		f.t.Error(err)
	}
	id := request.ScannerID
	if request.Scan != nil {
		region := f.region(server, request.Region)
		if region == nil {
			return nil, nil, "NotServingRegionException"
		}
		f.lastID++
		id = f.lastID
		f.scanners[id] = f.open(region, request.Scan)
	}
	s := f.scanners[id]
	if s == nil {
		return nil, nil, "UnknownScannerException"
	}
	if request.Scan == nil && !request.Close {
		if request.CallSeq != s.seq {
			return nil, nil, "exceptions.OutOfOrderScannerNextException"
		}
		s.seq++
	}
	response := wire.ScanResponse{ScannerID: id, More: true, MoreInRegion: true, Lease: 60_000, ReadPoint: uint64(f.puts)}
	if request.Renew || request.Close {
		if request.Close {
			delete(f.scanners, id)
		}
		return response.AppendTo(nil), nil, ""
	}
	n := min(f.perScan, len(s.cells))
	last := ""
	for i, c := range s.cells[:n] {
		if i == 0 || c.row != last {
			response.Results = append(response.Results, wire.ScanResult{})
		}
		last = c.row
		response.Results[len(response.Results)-1].Cells++
		block = append(block, c.cell...)
	}
	s.cells = s.cells[n:]
	if len(s.cells) == 0 {
		response.MoreInRegion = false
		delete(f.scanners, id)
	} else if n > 0 {
		// As HBase does, it does not look whether the row goes on.
		response.Results[len(response.Results)-1].Partial = true
	}
	return response.AppendTo(nil), block, ""
}

// open collects the cells of a scan in a region. As in one that was compacted a moment ago, of a cell that was put
// after the read point there is no older version.
func (f *fake) open(region *fakeRegion, scan *wire.Scan) *fakeScanner {
	s := new(fakeScanner)
	rows := slices.Sorted(maps.Keys(f.rows))
	if scan.Reversed {
		slices.Reverse(rows)
	}
	for _, row := range rows {
		low, high := string(scan.Start), string(scan.Stop)
		lowOpen, highOpen := scan.StartExclusive, !scan.StopInclusive
		if scan.Reversed {
			low, high, lowOpen, highOpen = high, low, highOpen, lowOpen
		}
		if !region.holds(row) || row < low || row == low && lowOpen && low != "" ||
			high != "" && (row > high || row == high && highOpen) {
			continue
		}
		block, _ := f.appendRow(nil, row)
		for it := wire.NewCellIter(block); it.Next(); {
			if scan.ReadPoint > 0 && f.written[[2]string{row, string(it.Cell.Qualifier)}] > scan.ReadPoint {
				continue
			}
			cell := wire.AppendCell(nil, it.Cell.Row, "f", it.Cell.Qualifier, 1, wire.CellPut, it.Cell.Value)
			s.cells = append(s.cells, fakeCell{row, cell})
		}
	}
	return s
}
