package client

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Scan asks for the rows of a table from Start (inclusive) to Stop (exclusive). The zero value of each optional field
// is a sensible choice.
type Scan struct {
	Table string
	Start []byte // empty: from the table's beginning
	Stop  []byte // empty: to its end

	Columns   []Column       // empty: all; rows without a cell in them are left out
	Filter    wire.Filter    // applied by the servers; nil: none
	TimeRange wire.TimeRange // of the cells; zero: all
	Limit     int            // at most so many rows; 0: no limit
	Reversed  bool           // in descending order: from the last row before Stop down to Start

	// Rows is the most rows of one response. Default: 10,000.
	Rows int
	// ResponseBytes is about the size of one response, as the server counts, to which 1.7 bytes of memory are one on
	// the wire. Up to three are held at a time. Default: 2 MiB.
	ResponseBytes int
	// Read tells the servers how to read their files. Default: their choice.
	Read wire.ReadType
	// NoCache keeps blocks that are read out of the servers' caches.
	NoCache bool
}

const (
	defaultScanRows      = 10_000
	defaultResponseBytes = 2 << 20
)

// Scan yields the rows in order, each whole. While the consumer works on what one response brought, the next one is
// fetched; a consumer that takes its time keeps its scanners alive. A scanner that is lost, with its region, its server
// or its lease, is replaced by one that goes on behind the last row: no row is missed or comes twice.
//
// It sees all that was acknowledged before it began. The cells of a row are of one moment, different rows may be of
// different ones.
//
// It ends with ctx, or after Config.OperationTimeout in which nothing came. If it fails it yields the error once, with
// an empty Row.
func (c *Client) Scan(ctx context.Context, s Scan) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if err := c.scan(ctx, &s, func(row Row) bool { return yield(row, nil) }); err != nil {
			yield(Row{}, err)
		}
	}
}

// scan runs the fetching side in a goroutine of its own and assembles rows here.
func (c *Client) scan(ctx context.Context, spec *Scan, yield func(Row) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	f := newFetcher(c, spec)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
		for ch := range f.out { // what it had ready and nobody took
			ch.release()
		}
	}()
	asm := assembler{limit: spec.Limit, reversed: spec.Reversed, yield: yield}
	defer asm.drop()
	for ch := range f.out {
		more, err := asm.add(ch)
		if err != nil {
			return &Error{Verb: "scan", Table: spec.Table, Class: ErrUnavailable, Err: fmt.Errorf("read answer: %w", err)}
		}
		if !more {
			return nil
		}
		f.free <- ch
	}
	if f.err == nil && !f.again { // both were set before out was closed
		asm.flush()
	}
	return f.err
}

// chunk is one response on its way from the fetcher to the assembler.
type chunk struct {
	response *rpc.Response
	answer   wire.ScanResponse
	// again says that the row that was left incomplete comes anew from its beginning.
	again bool
}

func (ch *chunk) release() {
	if ch.response != nil {
		ch.response.Release()
		ch.response = nil
	}
}

// assembler makes whole rows of the results of responses.
type assembler struct {
	limit    int // 0: none
	reversed bool
	yield    func(Row) bool

	cells   []Cell          // of the row that is being made
	held    []*rpc.Response // which the cells of an incomplete row point into
	partial bool            // cells is a row that may go on in the next result
	rows    int
	last    []byte // key of the row before
}

// add takes a response, and returns false when no more are wanted. It keeps, or releases, the response.
func (a *assembler) add(ch *chunk) (more bool, err error) {
	response := ch.response
	ch.response = nil
	if ch.again {
		a.drop()
	}
	it := wire.NewCellIter(response.Cells)
	for i := range ch.answer.Results {
		result := &ch.answer.Results[i]
		if more, err = a.result(&it, result.Cells); err != nil || !more {
			response.Release()
			return false, err
		}
		a.partial = result.Partial
		if !a.partial && !a.flush() {
			response.Release()
			return false, nil
		}
	}
	if len(it.Rest()) > 0 || ch.answer.Embedded > 0 {
		err = fmt.Errorf("%w: %d bytes of cells are of no row, %d results have none", wire.ErrMalformed, len(it.Rest()),
			ch.answer.Embedded)
	}
	if a.partial && err == nil {
		a.held = append(a.held, response)
	} else {
		response.Release()
	}
	return true, err
}

// result adds the next n cells, which are of one row, to the row. Those of another row show that the row was complete,
// although the server could not know it when it cut the response.
func (a *assembler) result(it *wire.CellIter, n int) (more bool, err error) {
	for i := range n {
		if !it.Next() {
			if err := it.Err(); err != nil {
				return false, err
			}
			return false, fmt.Errorf("%w: cells are missing", wire.ErrMalformed)
		}
		row := it.Cell.Row
		if i == 0 && len(a.cells) > 0 && !bytes.Equal(row, a.cells[0].Row) && !a.flush() {
			return false, nil
		}
		if len(a.cells) == 0 && !a.follows(row) {
			return false, fmt.Errorf("%w: row %x comes after row %x", wire.ErrMalformed, row, a.last)
		}
		if len(a.cells) > 0 && !bytes.Equal(row, a.cells[0].Row) {
			return false, fmt.Errorf("%w: rows %x and %x are one result", wire.ErrMalformed, a.cells[0].Row, row)
		}
		a.cells = append(a.cells, it.Cell)
	}
	return true, nil
}

// follows tells whether a row may come behind the one before.
func (a *assembler) follows(row []byte) bool {
	if a.rows == 0 {
		return true
	}
	if a.reversed {
		return bytes.Compare(row, a.last) < 0
	}
	return bytes.Compare(row, a.last) > 0
}

// flush hands out the row. It returns false when no more are wanted.
func (a *assembler) flush() bool {
	if len(a.cells) == 0 {
		return true
	}
	a.rows++
	a.last = append(a.last[:0], a.cells[0].Row...)
	more := a.yield(Row{Key: a.cells[0].Row, Cells: a.cells})
	a.drop()
	return more && (a.limit <= 0 || a.rows < a.limit)
}

// drop forgets the row.
func (a *assembler) drop() {
	a.cells, a.partial = a.cells[:0], false
	for i, r := range a.held {
		r.Release()
		a.held[i] = nil
	}
	a.held = a.held[:0]
}
