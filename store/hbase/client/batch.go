package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Batch is a write under way: mutations of one table, which go out by region as soon as there are enough for a request,
// while more are added. Flush sends the rest and waits.
//
// Mutations carry timestamps, so that repeating one changes nothing. What fails is repeated; what has succeeded is not.
// The first failure that cannot be repeated ends the whole batch, of which any part may have been written then; writing
// it all once more is safe.
//
// Mutations of one row that are added next to each other take effect together, unless they are more than a request can
// hold; they are also what the server handles best. Mutations of a region take effect in the order they were added, as
// long as nothing goes wrong.
//
// A Batch is used by one goroutine, and not after Flush. Its memory is bounded by what BatchBytes times the number of
// regions that it writes to allows, 16 MiB at most, and Config.WriteBytes.
type Batch struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelFunc
	table  string

	parts parts
	open  int // bytes in blocks that are not sent yet
	wg    sync.WaitGroup
	// applied is set when something was written; the senders set it at any time.
	applied atomic.Bool

	mu  sync.Mutex // guards err, last of parts, and next of blocks
	err error      // the first failure
}

// parts is what a batch has for each region that it has met, in order. Regions are as they were when they were met.
type parts struct {
	met  regionMap
	list []*part // by region of met
}

// of returns the part of a row, nil when its region was not met yet. It does not allocate.
func (p *parts) of(row []byte) *part {
	if i := p.met.index(row); i >= 0 && p.met.regions[i].holds(row) {
		return p.list[i]
	}
	return nil
}

// add adds the part of a region that was not met yet.
func (p *parts) add(region *Region, row []byte) *part {
	i := p.met.index(row)
	added := &part{region: region}
	p.met.insert(i, region)
	p.list = slices.Insert(p.list, i+1, added)
	return added
}

// part is what a batch has for one region.
type part struct {
	region *Region
	block  *block // being filled; nil when empty
	last   *block // of those to be sent, one after the other, by a goroutine of their own; nil when there are none
}

// block is the mutations of one request.
type block struct {
	wire.MutationBatch
	batch   *Batch // these two are set for the first one of those that a goroutine sends
	part    *part
	run     func() // starts to send; made once, where a go statement with arguments makes one each time
	next    *block // of the same part
	mixed   bool   // its rows may not all be of one region
	held    int    // of the budget
	param   []byte
	pieces  [2][]byte
	request rpc.Request
}

// maxOpen bounds the bytes in blocks of one batch that are not full.
const maxOpen = 16 << 20

// NewBatch begins a write to a table. It ends with ctx, or after Config.OperationTimeout.
// Every batch has to be flushed, and Flush tells when there is no such table.
func (c *Client) NewBatch(ctx context.Context, table string) (*Batch, error) {
	if c.pool.life.Err() != nil {
		return nil, &Error{Verb: "put", Table: table, Class: ErrClosed}
	}
	ctx, cancel := c.bounded(ctx)
	return &Batch{c: c, ctx: ctx, cancel: cancel, table: table}, nil
}

// Put adds a cell. The timestamp is in milliseconds and not 0: the server's clock would not be the same at every
// attempt. It copies what it is given. It waits while Config.WriteBytes are on their way, and for
// the look-up of a region that is not known. An error is told by Flush.
func (b *Batch) Put(row []byte, family string, qualifier []byte, timestamp int64, value []byte) {
	if p := b.part(row, family, qualifier, timestamp, value); p != nil {
		before := len(p.block.Block())
		p.block.Put(row, family, qualifier, timestamp, value)
		b.added(p, len(p.block.Block())-before)
	}
}

// Delete adds the removal of all versions of a cell that are not newer than timestamp. Otherwise as Put.
func (b *Batch) Delete(row []byte, family string, qualifier []byte, timestamp int64) {
	if p := b.part(row, family, qualifier, timestamp, nil); p != nil {
		before := len(p.block.Block())
		p.block.Delete(row, family, qualifier, timestamp)
		b.added(p, len(p.block.Block())-before)
	}
}

// part returns the one that a mutation of row goes to, with room in its block; nil when the batch has failed.
func (b *Batch) part(row []byte, family string, qualifier []byte, timestamp int64, value []byte) *part {
	if len(row) == 0 || len(row) > wire.MaxRow || len(family) == 0 || len(family) > wire.MaxFamily ||
		timestamp <= 0 || timestamp >= wire.LatestTimestamp ||
		wire.CellSize(len(row), len(family), len(qualifier), len(value)) > wire.MaxCell {
		b.refuse(row, family, qualifier, timestamp, value)
		return nil
	}
	p := b.parts.of(row)
	if p == nil {
		if p = b.meet(row); p == nil {
			return nil
		}
	}
	return b.room(p, row)
}

// meet finds the region of a row, and makes its part; nil when the batch has failed.
func (b *Batch) meet(row []byte) *part {
	if b.failed() {
		return nil
	}
	region, err := b.c.locate(b.ctx, b.c.attempt("put", b.table, bytes.Clone(row)))
	if err != nil {
		b.fail(err)
		return nil
	}
	return b.parts.add(region, row)
}

// room makes sure that the block of a part can take a cell of row.
func (b *Batch) room(p *part, row []byte) *part {
	if blk := p.block; blk != nil {
		full := len(blk.Block()) >= b.c.cfg.BatchBytes || blk.Actions() >= wire.MaxActions
		if full && (!sameRow(blk, row) || len(blk.Block()) >= rowStretch*b.c.cfg.BatchBytes) {
			b.dispatch(p)
		}
	}
	if p.block == nil {
		p.block = b.c.block()
		p.block.mixed = p.region.isHole()
	}
	return p
}

// rowStretch is how many times BatchBytes a block may have to keep the mutations of one row together.
const rowStretch = 8

func sameRow(blk *block, row []byte) bool {
	return string(blk.Action(blk.Actions()-1).Row) == string(row)
}

func (b *Batch) added(p *part, size int) {
	b.open += size
	if b.open > maxOpen {
		b.dispatchAll()
	}
}

func (b *Batch) dispatchAll() {
	for _, p := range b.parts.list {
		if p.block != nil {
			b.dispatch(p)
		}
	}
}

// refuse fails the batch for a mutation that must not be sent.
func (b *Batch) refuse(row []byte, family string, qualifier []byte, timestamp int64, value []byte) {
	b.fail(&Error{Verb: "put", Table: b.table, Row: append([]byte{}, row...), Class: ErrInvalid,
		Err: fmt.Errorf("row of %d bytes, must be 1 to %d; family of %d, must be 1 to %d; qualifier of %d and value of %d; "+
			"timestamp %d, must be positive", len(row), wire.MaxRow, len(family), wire.MaxFamily, len(qualifier), len(value),
			timestamp)})
}

// fail ends the batch, unless it has failed already.
func (b *Batch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.cancel()
	}
}

func (b *Batch) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// Flush sends what is left, waits until all is acknowledged, and ends the batch.
func (b *Batch) Flush() error {
	b.dispatchAll()
	b.wg.Wait()
	b.cancel()
	b.parts = parts{}
	// Nobody else is left.
	if e, ok := errors.AsType[*Error](b.err); ok && b.applied.Load() {
		e.MayHaveApplied = true
	}
	return b.err
}

// block takes an empty block from the pool.
func (c *Client) block() *block {
	if blk, ok := c.blocks.Get().(*block); ok {
		return blk
	}
	blk := new(block)
	blk.run = func() { blk.batch.drain(blk.part, blk) }
	return blk
}

// maxKept is the size above which a block's memory is not kept.
const maxKept = 2 << 20

func (c *Client) recycle(blk *block) {
	if blk.held > 0 {
		c.writes.release(blk.held)
	}
	if cap(blk.Block()) > maxKept {
		return
	}
	blk.Reset()
	blk.batch, blk.part, blk.next, blk.mixed, blk.held = nil, nil, nil, false, 0
	c.blocks.Put(blk)
}
