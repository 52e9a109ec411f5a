package client

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Get asks for rows by their keys.
type Get struct {
	Table     string
	Rows      [][]byte       // ascending, each once; not to be changed until the iteration has ended
	Columns   []Column       // empty: all
	Filter    wire.Filter    // applied by the servers; nil: none
	TimeRange wire.TimeRange // of the cells; zero: all
}

const (
	// getRows bounds the rows of one request.
	getRows = 1000
	// getsAhead bounds the requests of one Get that are in flight, or answered and not consumed yet.
	getsAhead = 8
)

// Get yields those of the rows that have a cell in the wanted columns, in order. Requests for the regions run at the
// same time. It ends with ctx, or after Config.OperationTimeout. If it fails it yields the error once, with an empty
// Row.
func (c *Client) Get(ctx context.Context, g Get) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		err := c.withTimeout(ctx, func(ctx context.Context) error {
			return c.get(ctx, &g, func(row Row) bool { return yield(row, nil) })
		})
		if err != nil {
			yield(Row{}, err)
		}
	}
}

func (c *Client) get(ctx context.Context, g *Get, yield func(Row) bool) error {
	if err := g.check(); err != nil {
		return &Error{Verb: "get", Table: g.Table, Class: ErrInvalid, Err: err}
	}
	if len(g.Rows) == 0 {
		return nil
	}
	selection := wire.Selection{Columns: wireColumns(g.Columns), Filter: g.Filter, TimeRange: g.TimeRange}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bunches, err := divide(ctx, c, g, selection.AppendTo(nil))
	if err != nil {
		return err
	}
	started := 0
	defer func() {
		cancel()
		for i := range bunches[:started] {
			<-bunches[i].done
			bunches[i].release()
		}
	}()
	var cells []Cell
	for i := range bunches {
		for ; started < len(bunches) && started < i+getsAhead; started++ {
			go bunches[started].run(ctx)
		}
		b := &bunches[i]
		<-b.done
		if b.err != nil {
			return b.err
		}
		for j := range b.found {
			var err error
			if cells, err = readCells(cells[:0], b.found[j], b.rows[j]); err != nil {
				return &Error{Verb: "get", Table: g.Table, Row: b.rows[j], Class: ErrUnavailable, Err: err}
			}
			if len(cells) > 0 && !yield(Row{Key: cells[0].Row, Cells: cells}) {
				return nil
			}
		}
		b.release()
	}
	return nil
}

func (g *Get) check() error {
	for i, row := range g.Rows {
		if len(row) == 0 || len(row) > wire.MaxRow {
			return fmt.Errorf("row of %d bytes, must be 1 to %d", len(row), wire.MaxRow)
		}
		if i > 0 && bytes.Compare(g.Rows[i-1], row) >= 0 {
			return fmt.Errorf("rows are not in ascending order at %x", row)
		}
	}
	return nil
}

// divide cuts the rows into bunches of one region each, and those of a region into parts of about the same size.
func divide(ctx context.Context, c *Client, g *Get, selection []byte) ([]bunch, error) {
	var bunches []bunch
	for rows := g.Rows; len(rows) > 0; {
		region, err := c.locate(ctx, c.attempt("get", g.Table, rows[0]))
		if err != nil {
			return nil, err
		}
		n := sort.Search(len(rows), func(i int) bool { return region.endsBefore(rows[i]) })
		parts := (n + getRows - 1) / getRows
		for part := range parts {
			b := bunch{c: c, selection: selection, rows: rows[n*part/parts : n*(part+1)/parts], done: make(chan struct{})}
			b.attempt = c.attempt("get", g.Table, b.rows[0])
			b.attempt.first = region
			bunches = append(bunches, b)
		}
		rows = rows[n:]
	}
	return bunches, nil
}

// readCells reads a block of cells, which are all of one row.
func readCells(dst []Cell, block, row []byte) ([]Cell, error) {
	it := wire.NewCellIter(block)
	for it.Next() {
		if !bytes.Equal(it.Cell.Row, row) {
			return dst, fmt.Errorf("%w: got a cell of row %x, want %x", wire.ErrMalformed, it.Cell.Row, row)
		}
		dst = append(dst, it.Cell)
	}
	return dst, it.Err()
}

// bunch is some rows that were of one region when the Get began.
type bunch struct {
	c         *Client
	attempt   *attempt
	selection []byte
	rows      [][]byte

	done      chan struct{} // closed when what follows is set
	err       error
	found     [][]byte // by row: its cells, as a block that points into one of responses
	responses []*rpc.Response
}

// release gives the memory of the rows back; it may be called more than once.
func (b *bunch) release() {
	for _, r := range b.responses {
		r.Release()
	}
	b.responses, b.found = nil, nil
}

// run gets all rows. What one request leaves open the next one asks for.
func (b *bunch) run(ctx context.Context) {
	defer close(b.done)
	b.found = make([][]byte, len(b.rows))
	missing := make([]int, len(b.rows))
	for i := range missing {
		missing[i] = i
	}
	param := make([]byte, 0, len(b.rows)*(len(b.rows[0])+len(b.selection)+24)+256)
	for len(missing) > 0 {
		b.attempt.row = b.rows[missing[0]]
		var err error
		var left []int
		if left, param, err = b.ask(ctx, missing, param[:0]); len(left) < len(missing) {
			b.attempt.tried = 0
		}
		missing = left
		if err == nil {
			continue
		}
		if _, b.err = b.attempt.failed(ctx, err); b.err != nil {
			return
		}
	}
}

// ask makes one request, for those of the missing rows that are of the region of the first one. It returns those that
// are missing still; the error is why some that were asked for are.
func (b *bunch) ask(ctx context.Context, missing []int, buf []byte) (left []int, param []byte, err error) {
	if err := b.attempt.place(ctx); err != nil {
		return missing, buf, err
	}
	region := b.attempt.region
	n := sort.Search(len(missing), func(i int) bool { return region.endsBefore(b.rows[missing[i]]) })
	param, mark := wire.BeginRegionAction(buf, region.Name, false)
	for i, row := range missing[:n] {
		param = wire.AppendGetAction(param, i, b.rows[row], b.selection)
	}
	param = wire.EndMessage(param, mark)
	request := rpc.Request{Method: wire.MethodMulti, Param: [][]byte{param}}
	response, err := b.c.inTurn(ctx, region, &request, b.c.pool.reads)
	if err != nil {
		return missing, param, err
	}
	b.responses = append(b.responses, response)
	left, err = b.take(response, missing[:n])
	return append(left, missing[n:]...), param, err
}

// take finds the cells of the rows that were asked for in a response. It returns the rows that have failed, in order,
// and the worst reason.
func (b *bunch) take(response *rpc.Response, asked []int) (failed []int, err error) {
	results := newOutcome(response.Param, len(asked))
	cells := wire.NewCellIter(response.Cells)
	for results.next() {
		row := asked[results.Index]
		if results.Exception != nil {
			failed = append(failed, row)
			continue
		}
		block, ok := cells.Skip(results.Result.Cells)
		if !ok || results.Result.Embedded > 0 {
			return asked, fmt.Errorf("%w: cells are missing, or of another form (%w)", wire.ErrMalformed, cells.Err())
		}
		b.found[row] = block
	}
	whole, err := results.end()
	if whole {
		return asked, err
	}
	slices.Sort(failed) // servers answer in any order
	return failed, err
}
