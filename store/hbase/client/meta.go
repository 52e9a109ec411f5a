package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// errNoRegions says that hbase:meta has a table, but no region of it (yet).
var errNoRegions = errors.New("table has no regions at the moment")

// metaRow is a row of hbase:meta, by qualifier; of the families of a scan no two have the same ones.
type metaRow map[string][]byte

// region makes a Region of a row, and tells its table, which is none for what serves no rows of its own: a replica, or
// a region that was split, which stays in the table until its daughters need none of its files. The row's values are
// its own: see metaAssembler.
func (row metaRow) region() (region *Region, of wire.TableName, err error) {
	info, err := wire.ParseStoredRegionInfo(row[wire.MetaRegionInfo])
	if err != nil {
		return nil, of, err
	}
	if info.ReplicaID == 0 && !info.Split && !info.Offline {
		of = info.Table
	}
	region = &Region{Name: info.Name(), Start: info.StartKey, End: info.EndKey, id: info.ID}
	if !serves(string(row[wire.MetaState])) || len(row[wire.MetaServer]) == 0 {
		return region, of, nil
	}
	server, err := wire.ParseMetaServer(row[wire.MetaServer], row[wire.MetaServerStartCode])
	if err != nil {
		return nil, of, err
	}
	region.Server, region.addr = server, server.Addr()
	return region, of, nil
}

// serves reports whether a region in this state of the master's book-keeping has a server that may answer for it. In
// the others info:server still names the last one. A cluster of before 2.0 writes no state.
func serves(state string) bool {
	switch state {
	case "", "OPEN", "CLOSING", "SPLITTING", "MERGING":
		return true
	default:
		return false
	}
}

// scanMeta calls yield for each row of hbase:meta that a scan finds, about limit at most unless that is 0. The values
// of a row are valid until yield returns. A failure makes the next scan ask the registry where hbase:meta is.
func (l *locator) scanMeta(ctx context.Context, scan *wire.Scan, limit int, yield func(metaRow) error) error {
	known := l.meta.Load()
	if known == nil {
		server, err := l.reg.metaServer(ctx)
		if err != nil {
			return err
		}
		known = &server
		l.meta.Store(known)
	}
	conn, err := l.pool.calls(ctx, known.Addr())
	if err == nil {
		err = scanMetaOn(ctx, conn, scan, limit, yield)
	}
	if err != nil {
		l.meta.CompareAndSwap(known, nil)
	}
	return err
}

// metaRows is the number of rows asked for at a time.
const metaRows = 2000

// scanMetaOn runs one scanner to its end, or until it has found so many rows as scanMeta. All rows are of one view of
// the table.
func scanMetaOn(ctx context.Context, conn *rpc.Conn, scan *wire.Scan, limit int, yield func(metaRow) error) error {
	rows := metaAssembler{yield: yield}
	var answer wire.ScanResponse
	request := wire.ScanRequest{Region: []byte(wire.MetaRegionName), Scan: scan, Rows: metaRows}
	if limit > 0 {
		request.Rows, request.LimitOfRows = min(metaRows, uint32(limit)), uint32(limit)
	}
	for {
		response, err := conn.CallMessage(ctx, wire.MethodScan, &request)
		if err != nil {
			return err
		}
		err = answer.Parse(response.Param)
		if err == nil {
			err = rows.add(response.Cells)
		}
		response.Release()
		done := !answer.More || !answer.MoreInRegion || limit > 0 && rows.count >= limit
		if err == nil && done {
			err = rows.flush()
		}
		if err != nil {
			return fmt.Errorf("scan %s: %w", wire.MetaTable, err)
		}
		if done {
			return nil
		}
		if request.Scan != nil {
			request = wire.ScanRequest{ScannerID: answer.ScannerID, Rows: metaRows}
		} else {
			request.CallSeq++
		}
	}
}

// metaAssembler makes rows of cells. It copies them: a row may come in parts, in more than one response.
type metaAssembler struct {
	yield func(metaRow) error
	key   []byte
	row   metaRow
	count int
}

func (a *metaAssembler) add(block []byte) error {
	cells := wire.NewCellIter(block)
	for cells.Next() {
		if a.row == nil || string(cells.Cell.Row) != string(a.key) {
			if err := a.flush(); err != nil {
				return err
			}
			a.key = append(a.key[:0], cells.Cell.Row...)
			a.row = make(metaRow)
			a.count++
		}
		a.row[string(cells.Cell.Qualifier)] = append([]byte(nil), cells.Cell.Value...)
	}
	return cells.Err()
}

// flush ends the row that is being made.
func (a *metaAssembler) flush() error {
	if a.row == nil {
		return nil
	}
	row := a.row
	a.row = nil
	if _, ok := row[wire.MetaRegionInfo]; !ok {
		if _, ok := row[wire.MetaTableState]; !ok {
			return nil // left behind by a region that is being removed
		}
	}
	if err := a.yield(row); err != nil {
		return fmt.Errorf("row %q: %w", a.key, err)
	}
	return nil
}
