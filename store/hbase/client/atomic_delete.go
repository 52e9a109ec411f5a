package client

import (
	"bytes"
	"context"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// checkAndDelete removes a cell if it holds what is expected, and reports whether it did. The removal has the timestamp
// that was read with the cell: a server stamps a removal by its clock alone, which may be behind the one that stamped
// the cell, and then removes nothing; and a removal of the latest version only would bring back the one before, until a
// compaction.
//
// The cell may have been written over with the same bytes after it was read, which the removal does not reach. So the
// cell is read again, also after an answer that was lost. The cell must not be written again once it is removed.
func (c *Client) checkAndDelete(ctx context.Context, check *Check) (removed bool, err error) {
	condition := wire.Condition{
		Row: check.Row, Family: check.Family, Qualifier: check.Qualifier, Op: wire.Equal,
		Comparator: wire.Binary(check.Expect),
	}
	request := wire.MutateRequest{Mutation: wire.Mutation{Type: wire.Delete, Cells: 1}, Condition: &condition}
	a := c.change("check and delete", check.Table, check.Row)
	for {
		cell, _, err := c.cell(ctx, &check.Coord)
		switch {
		case err != nil:
			return false, a.final(ErrUnavailable, err)
		case bytes.Equal(cell.Value, check.Expect):
		case removed || a.maybe && len(cell.Value) == 0:
			return true, nil
		case a.maybe:
			return false, a.final(ErrUnavailable, errChanged)
		default:
			return false, nil
		}
		block := wire.AppendCell(nil, check.Row, check.Family, check.Qualifier, cell.Timestamp, wire.CellDeleteColumn, nil)
		err = c.onceOnRow(ctx, a, func(ctx context.Context, region *Region, conn *rpc.Conn) error {
			return mutate(ctx, conn, region, &request, block, func(_ *rpc.Response, answer *wire.MutateResponse) error {
				removed = removed || answer.Processed
				return nil
			})
		})
		if err != nil {
			if _, final := a.failed(ctx, err); final != nil {
				return false, final
			}
		}
	}
}
