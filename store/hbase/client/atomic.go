package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Coord is the address of a cell.
type Coord struct {
	Table     string
	Row       []byte
	Family    string
	Qualifier []byte
}

func (c *Coord) check(verb string, value []byte) error {
	size := wire.CellSize(len(c.Row), len(c.Family), len(c.Qualifier), len(value))
	if len(c.Row) > 0 && len(c.Row) <= wire.MaxRow && len(c.Family) > 0 && len(c.Family) <= wire.MaxFamily &&
		size <= wire.MaxCell {
		return nil
	}
	return &Error{Verb: verb, Table: c.Table, Row: c.Row, Class: ErrInvalid, Err: fmt.Errorf(
		"row of %d bytes, must be 1 to %d; family of %d, must be 1 to %d; cell of %d, at most %d",
		len(c.Row), wire.MaxRow, len(c.Family), wire.MaxFamily, size, wire.MaxCell)}
}

// Increment adds delta to the 8-byte big-endian signed number in a cell, absent counting as 0, and returns the sum,
// which is nobody else's while deltas are positive. An attempt whose answer was lost is repeated as one of its own, so
// that delta may be counted more than once: sums have gaps.
//
// HBase would recognize a repetition by a nonce. But what it answers then is what it finds in the cell as of the first
// attempt, or as of no time when it knows the nonce from the log of a server that died. When others have counted on,
// and the cell was written to a file since, that is an older number, which somebody has already.
func (c *Client) Increment(ctx context.Context, at Coord, delta int64) (int64, error) {
	if err := at.check("increment", nil); err != nil {
		return 0, err
	}
	var value [8]byte
	binary.BigEndian.PutUint64(value[:], uint64(delta))
	// The timestamp of an increment is the server's, whatever is sent.
	block := wire.AppendCell(nil, at.Row, at.Family, at.Qualifier, wire.LatestTimestamp, wire.CellPut, value[:])
	request := wire.MutateRequest{Mutation: wire.Mutation{Type: wire.Increment, Cells: 1}}
	var sum int64
	err := c.withTimeout(ctx, func(ctx context.Context) error {
		a := c.change("increment", at.Table, at.Row)
		return c.onRow(ctx, a, func(ctx context.Context, region *Region, conn *rpc.Conn) error {
			return mutate(ctx, conn, region, &request, block, func(r *rpc.Response, answer *wire.MutateResponse) error {
				cells, err := readCells(nil, r.Cells, at.Row)
				if err != nil {
					return err
				}
				if len(cells) != 1 || len(cells[0].Value) != 8 {
					return fmt.Errorf("increment: %w: %d cells, or not of 8 bytes", wire.ErrMalformed, len(cells))
				}
				sum = int64(binary.BigEndian.Uint64(cells[0].Value))
				return nil
			})
		})
	})
	return sum, err
}

// mutate makes one Mutate request.
func mutate(
	ctx context.Context, conn *rpc.Conn, region *Region, request *wire.MutateRequest, block []byte,
	read func(*rpc.Response, *wire.MutateResponse) error,
) error {
	request.Region = region.Name
	response, err := conn.Call(ctx, &rpc.Request{
		Method: wire.MethodMutate, Param: [][]byte{request.AppendTo(nil)}, Cells: [][]byte{block},
	})
	if err != nil {
		return err
	}
	defer response.Release()
	var answer wire.MutateResponse
	if err := answer.Parse(response.Param); err != nil {
		return err
	}
	return read(response, &answer)
}

// Check is a put that depends on what the cell holds, or a removal that does.
type Check struct {
	Coord
	Expect []byte // nil: the cell must be absent; else it must hold exactly these bytes
	Value  []byte
	Delete bool // remove the cell, see checkAndDelete; Expect must not be nil
}

// errChanged says that an attempt may have taken effect, and the cell has changed since, by it or not.
var errChanged = errors.New("the answer was lost, and the cell holds neither the old nor the new value by now")

// CheckAndPut writes Value into the cell if it is as expected, and reports whether it did. It is atomic. HBase makes no
// difference here between a cell without a value and none. The timestamp is that of the server's clock, under the row's
// lock, and never below that of the cell that is replaced: one from here could be, and the old cell would hide the new.
//
// When an answer is lost the cell is read again. If it holds Value, the put counts as done: two writers that want to
// write the same value over the same one may then both be told that they did. If it is still as expected, the put is
// repeated. If it holds something else it cannot be known who was first, and the error says so.
func (c *Client) CheckAndPut(ctx context.Context, check Check) (done bool, err error) {
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		done, err = c.checkAndPut(ctx, &check)
		return err
	})
	return done, err
}

// checksAtOnce bounds the checks of a CheckAndPutAll that are in flight.
const checksAtOnce = 64

// CheckAndPutAll does each check on its own, many at a time, and reports for each whether it was done. They must be of
// different cells. When it fails, with the error of one of them, any may have been done.
func (c *Client) CheckAndPutAll(ctx context.Context, checks []Check) (done []bool, err error) {
	done = make([]bool, len(checks))
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var wg sync.WaitGroup
		turn := newLimiter(checksAtOnce)
		for i := range checks {
			if turn.acquire(ctx) != nil {
				break
			}
			wg.Go(func() {
				defer turn.release()
				var err error
				if done[i], err = c.checkAndPut(ctx, &checks[i]); err != nil {
					cancel(err)
				}
			})
		}
		wg.Wait()
		if ctx.Err() == nil {
			return nil
		}
		if e, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
			e.MayHaveApplied = e.MayHaveApplied || len(checks) > 1
			return e
		}
		return &Error{Verb: "check and put", Class: ErrUnavailable, MayHaveApplied: true, Err: context.Cause(ctx)}
	})
	return done, err
}

func (c *Client) checkAndPut(ctx context.Context, check *Check) (done bool, err error) {
	if err := check.check("check and put", check.Value); err != nil {
		return false, err
	}
	if check.Delete {
		return c.checkAndDelete(ctx, check)
	}
	condition := wire.Condition{
		Row: check.Row, Family: check.Family, Qualifier: check.Qualifier, Op: wire.Equal, Comparator: wire.NullComparator{},
	}
	if check.Expect != nil {
		condition.Comparator = wire.Binary(check.Expect)
	}
	request := wire.MutateRequest{Mutation: wire.Mutation{Type: wire.Put, Cells: 1}, Condition: &condition}
	block := wire.AppendCell(nil, check.Row, check.Family, check.Qualifier, wire.LatestTimestamp, wire.CellPut,
		check.Value)
	a := c.change("check and put", check.Table, check.Row)
	for {
		err := c.onceOnRow(ctx, a, func(ctx context.Context, region *Region, conn *rpc.Conn) error {
			return mutate(ctx, conn, region, &request, block, func(_ *rpc.Response, answer *wire.MutateResponse) error {
				done = answer.Processed
				return nil
			})
		})
		if err == nil && (done || !a.maybe) {
			return done, nil
		}
		if err != nil {
			if _, final := a.failed(ctx, err); final != nil {
				return false, final
			}
		}
		if !a.maybe {
			continue
		}
		// An earlier attempt may have been the one that changed the cell.
		switch state, err := c.compare(ctx, check); {
		case err != nil:
			return false, a.final(ErrUnavailable, err)
		case state == asWritten:
			return true, nil
		case state == asOther:
			return false, a.final(ErrUnavailable, errChanged)
		}
	}
}

// cellState is what a cell holds, as seen by a check.
type cellState uint8

const (
	asExpected cellState = iota
	asWritten
	asOther
)

// compare reads the cell of a check.
func (c *Client) compare(ctx context.Context, check *Check) (cellState, error) {
	cell, found, err := c.cell(ctx, &check.Coord)
	switch {
	case err != nil:
		return asOther, err
	case found && bytes.Equal(cell.Value, check.Value):
		return asWritten, nil
	case found == (check.Expect != nil) && bytes.Equal(cell.Value, check.Expect):
		return asExpected, nil
	default:
		return asOther, nil
	}
}

// cell reads a cell's timestamp and value.
func (c *Client) cell(ctx context.Context, at *Coord) (cell Cell, found bool, err error) {
	rows := Get{
		Table: at.Table, Rows: [][]byte{at.Row}, Columns: []Column{{Family: at.Family, Qualifier: at.qualifier()}},
	}
	err = c.get(ctx, &rows, func(row Row) bool {
		cell, found = Cell{Timestamp: row.Cells[0].Timestamp, Value: bytes.Clone(row.Cells[0].Value)}, true
		return true
	})
	return cell, found, err
}

// qualifier is that of the cell, not nil, which would stand for a whole family.
func (c *Coord) qualifier() []byte {
	if c.Qualifier == nil {
		return []byte{}
	}
	return c.Qualifier
}
