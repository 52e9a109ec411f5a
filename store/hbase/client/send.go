package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// dispatch hands the block of a part to its sender, when the budget allows. The sender of a region sends one block
// after the other, so that its mutations stay in order; those of other regions run beside it.
func (b *Batch) dispatch(p *part) {
	blk := p.block
	p.block = nil
	b.open -= len(blk.Block())
	held, err := b.c.writes.acquire(b.ctx, len(blk.Block()))
	if err != nil {
		b.fail(&Error{Verb: "put", Table: b.table, MayHaveApplied: true, Class: ErrUnavailable,
			Err: fmt.Errorf("wait until less is on its way: %w", err)})
		b.c.recycle(blk)
		return
	}
	blk.held = held
	b.mu.Lock()
	defer b.mu.Unlock()
	before := p.last
	p.last = blk
	if before != nil {
		before.next = blk
		return
	}
	blk.batch, blk.part = b, p
	b.wg.Add(1)
	go blk.run()
}

// drain sends the blocks of a part, of which blk is the first, until there are no more.
func (b *Batch) drain(p *part, blk *block) {
	defer b.wg.Done()
	for blk != nil {
		if !b.failed() {
			if err := b.c.deliver(b.ctx, b.table, p.region, blk); err != nil {
				b.fail(err)
			} else {
				b.applied.Store(true)
			}
		}
		sent := blk
		b.mu.Lock()
		if blk = sent.next; blk == nil {
			p.last = nil
		}
		b.mu.Unlock()
		b.c.recycle(sent)
	}
}

// deliver sends a block, and what fails of it again, until all of it is written. filled is the region that the block
// was filled for. The block is the caller's.
func (c *Client) deliver(ctx context.Context, table string, filled *Region, blk *block) error {
	a := c.change("put", table, blk.Action(0).Row)
	a.splits, a.first = true, filled
	for {
		left, err := c.deliverOnce(ctx, a, filled, blk)
		if err == nil {
			return nil
		}
		if left != nil {
			// From here on the block is one of our own.
			a.maybe = a.maybe || left.Actions() < blk.Actions()
			defer c.recycle(left)
			blk = left
			a.row = blk.Action(0).Row
		}
		if apart, ok := errors.AsType[*errApart](err); ok {
			return apart.err
		}
		decision, final := a.failed(ctx, err)
		if final != nil {
			a.row = nil
			return final
		}
		if decision.action == splitBatch {
			return c.deliverHalves(ctx, a, blk, err)
		}
	}
}

// deliverOnce makes one attempt. With an error, left is the part of the block that is not written, nil standing for
// all.
func (c *Client) deliverOnce(ctx context.Context, a *attempt, filled *Region, blk *block) (left *block, err error) {
	if err := a.place(ctx); err != nil {
		return nil, err
	}
	if (blk.mixed || !a.region.is(filled)) && !fits(a.region, blk) {
		return nil, c.deliverApart(ctx, a, blk)
	}
	return c.write(ctx, a.region, blk)
}

// fits reports whether all rows of a block are of the region.
func fits(region *Region, blk *block) bool {
	for i := range blk.Actions() {
		if !region.holds(blk.Action(i).Row) {
			return false
		}
	}
	return true
}

// errApart wraps what is final already, because deliver was called anew for parts of a block.
type errApart struct{ err error }

func (e *errApart) Error() string { return e.err.Error() }
func (e *errApart) Unwrap() error { return e.err }

// deliverApart sends a block whose rows are of several regions by now, region by region.
func (c *Client) deliverApart(ctx context.Context, a *attempt, blk *block) error {
	var apart parts
	defer func() {
		for _, p := range apart.list {
			c.recycle(p.block)
		}
	}()
	for i := range blk.Actions() {
		action := blk.Action(i)
		p := apart.of(action.Row)
		if p == nil {
			region, err := c.locator.locate(ctx, a.table, action.Row, false)
			if err != nil {
				return &lookupError{err}
			}
			p = apart.add(region, action.Row)
			p.block = c.block()
			p.block.mixed = region.isHole()
		}
		p.block.Add(action)
	}
	if len(apart.list) == 1 {
		return errUnassigned // its regions have changed again, or all of it belongs into a hole
	}
	for _, p := range apart.list {
		if err := c.deliver(ctx, a.table, p.region, p.block); err != nil {
			return &errApart{err}
		}
	}
	return nil
}

// deliverHalves sends a block that was too large for a request in two.
func (c *Client) deliverHalves(ctx context.Context, a *attempt, blk *block, cause error) error {
	n := blk.Actions()
	if n == 1 {
		return a.final(ErrTooLarge, cause)
	}
	for _, bounds := range [][2]int{{0, n / 2}, {n / 2, n}} {
		half := c.block()
		defer c.recycle(half)
		for i := bounds[0]; i < bounds[1]; i++ {
			half.Add(blk.Action(i))
		}
		half.mixed = blk.mixed
		if err := c.deliver(ctx, a.table, a.region, half); err != nil {
			return err
		}
	}
	return nil
}

// write makes one request of a block. With an error, left is what of it failed, nil standing for all.
func (c *Client) write(ctx context.Context, region *Region, blk *block) (left *block, err error) {
	blk.param = blk.AppendRegionAction(blk.param[:0], region.Name, wire.TableDurability)
	blk.pieces = [2][]byte{blk.param, blk.Block()}
	blk.request = rpc.Request{Method: wire.MethodMulti, Param: blk.pieces[:1], Cells: blk.pieces[1:]}
	response, err := c.inTurn(ctx, region, &blk.request, c.pool.writes)
	if err != nil {
		return nil, err
	}
	defer response.Release()
	return c.failures(blk, response.Param)
}

// failures reads the answer to a block. With an error, which is the worst one, left is the mutations that failed, nil
// standing for all.
func (c *Client) failures(blk *block, answer []byte) (left *block, err error) {
	results := newOutcome(answer, blk.Actions())
	if !results.nextFailure() {
		_, err := results.end()
		return nil, err
	}
	// Where some have failed it matters which, and all answers are looked at.
	results = newOutcome(answer, blk.Actions())
	for results.next() {
		if results.Exception == nil {
			continue
		}
		if left == nil {
			left = c.block()
			left.mixed = true
		}
		left.Add(blk.Action(results.Index))
	}
	whole, err := results.end()
	if whole && left != nil {
		c.recycle(left)
		left = nil
	}
	return left, err
}
