package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// attempt follows the attempts of one request, from the first to the one that ends it.
type attempt struct {
	c     *Client
	verb  string
	table string
	row   []byte // whose region is asked

	region *Region   // of the present attempt; nil before the first, and where it is not known
	placed time.Time // when it was found
	first  *Region   // to be asked at the first attempt without being located once more; nil: none

	tried  int       // attempts that failed
	since  time.Time // when the first of them did
	writes bool      // the request changes something
	splits bool      // the request can be repeated in halves
	maybe  bool      // an attempt may have taken effect

	// cause is why the last one failed that did before the time was over, nil when there is none. A timer reads it.
	cause atomic.Pointer[error]
}

// attempt begins a request that changes nothing.
func (c *Client) attempt(verb, table string, row []byte) *attempt {
	return &attempt{c: c, verb: verb, table: table, row: row}
}

// change begins a request that changes something.
func (c *Client) change(verb, table string, row []byte) *attempt {
	return &attempt{c: c, verb: verb, table: table, row: row, writes: true}
}

// errUnassigned says that a region has no server at the moment, or that there is a hole where a row belongs.
var errUnassigned = errors.New("no server has the region at the moment")

// find returns the region of the row, or with below the one in which the rows below it end.
func (a *attempt) find(ctx context.Context, below bool) (*Region, error) {
	a.region = nil
	region, err := a.c.locator.locate(ctx, a.table, a.row, below)
	if err != nil {
		return nil, &lookupError{err}
	}
	return region, nil
}

// place sets the region, to the one that holds the row.
func (a *attempt) place(ctx context.Context) error { return a.placeAt(ctx, false) }

// placeAt is place or, with below, sets it to the region in which the rows below the row end.
func (a *attempt) placeAt(ctx context.Context, below bool) error {
	region, err := a.first, error(nil)
	a.first = nil
	if region == nil || region.addr == "" || region.invalid.Load() {
		if region, err = a.find(ctx, below); err != nil {
			return err
		}
	}
	a.region, a.placed = region, time.Now()
	if region.addr == "" {
		return errUnassigned
	}
	return nil
}

// repeat runs try until it succeeds or its failure is final.
func (c *Client) repeat(ctx context.Context, a *attempt, try func(ctx context.Context) error) error {
	defer a.watch().Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if _, err := a.failed(ctx, err); err != nil {
			return err
		}
	}
}

// locate finds the region of the row of a request that is to be divided by regions.
func (c *Client) locate(ctx context.Context, a *attempt) (region *Region, err error) {
	err = c.repeat(ctx, a, func(ctx context.Context) error {
		region, err = a.find(ctx, false)
		return err
	})
	return region, err
}

// watch makes a timer that tells that the request has no answer, unless it is stopped in time.
func (a *attempt) watch() *time.Timer {
	start := time.Now()
	return time.AfterFunc(tellAfter, func() {
		err := &errSilent
		if cause := a.cause.Load(); cause != nil {
			err = cause
		}
		a.c.teller.tell(a.verb, a.table, start, *err)
	})
}

// onRow repeats a request to the region of a row.
func (c *Client) onRow(ctx context.Context, a *attempt, call rowCall) error {
	return c.repeat(ctx, a, func(ctx context.Context) error { return c.onceOnRow(ctx, a, call) })
}

// rowCall is a request to a region.
type rowCall func(ctx context.Context, region *Region, conn *rpc.Conn) error

// onceOnRow makes one attempt of a small request to the region of a row.
func (c *Client) onceOnRow(ctx context.Context, a *attempt, call rowCall) error {
	if err := a.place(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RPCTimeout)
	defer cancel()
	conn, err := c.pool.calls(ctx, a.region.addr)
	if err != nil {
		return err
	}
	return call(ctx, a.region, conn)
}

// inTurn makes one attempt of a large request to a region, of which only so many are under way at once.
func (c *Client) inTurn(ctx context.Context, region *Region, request *rpc.Request, kind *traffic) (*rpc.Response,
	error) {
	request.Deadline = time.Now().Add(c.cfg.RPCTimeout)
	leave, err := kind.regions.acquireBy(ctx, string(region.Name), request.Deadline)
	if err != nil {
		return nil, err
	}
	defer leave()
	if leave, err = kind.servers.acquireBy(ctx, region.addr, request.Deadline); err != nil {
		return nil, err
	}
	defer leave()
	conn, err := kind.conn(ctx, region.addr)
	if err != nil {
		return nil, err
	}
	return conn.Call(ctx, request)
}

// suspect is for how long a server must have been silent before a caller that is not patient any more, and does not say
// why, makes the next one ask where the region is.
const suspect = time.Second

// failed takes the failure of an attempt. When it returns no error the request is to be repeated as the decision
// says, for which it has made the pause already.
func (a *attempt) failed(ctx context.Context, err error) (decision, error) {
	if a.tried++; a.tried == 1 {
		a.since = time.Now()
		a.cause.Store(nil)
	}
	if ctx.Err() == nil {
		a.cause.Store(&err)
	}
	d := decide(err, a.tried, rand.Float64())
	a.maybe = a.maybe || d.maybe && a.writes
	if d.action == giveUp || d.action == splitBatch && !a.splits {
		return d, a.final(d.class, err)
	}
	if ctx.Err() != nil {
		impatient := errors.Is(ctx.Err(), context.Canceled) && time.Since(a.placed) < suspect
		if d.action == relocate && a.region != nil && !impatient {
			a.region.invalid.Store(true) // too late for this request; the next one shall not wait for the same server
		}
		return d, a.final(ErrUnavailable, a.because(context.Cause(ctx), err))
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d.pause {
		return d, a.final(ErrUnavailable, a.because(context.DeadlineExceeded, err))
	}
	a.c.cfg.Observer.Retry(a.verb, d.reason)
	a.c.teller.tell(a.verb, a.table, a.since, err)
	a.relocate(d, err)
	if err := a.c.sleep(ctx, d.pause); err != nil {
		if errors.Is(err, ErrClosed) {
			return d, a.final(ErrClosed, nil)
		}
		return d, a.final(ErrUnavailable, a.because(err, err))
	}
	return d, nil
}

// relocate makes the next attempt look the region up again, or go where the server said it went.
func (a *attempt) relocate(d decision, err error) {
	if d.action != relocate || a.region == nil {
		return
	}
	a.region.invalid.Store(true)
	var e *wire.Exception
	if errors.As(err, &e) {
		// Servers remember for minutes where a region went that has moved on, or back, since, or is no more: two of them
		// could send us to and fro. So hbase:meta is asked before another one is believed.
		if server, ok := e.MovedTo(); ok && !a.region.redirected {
			a.c.locator.moved(a.region, server)
		}
	}
}

// because joins the end of the context with what was the matter, then or the last time that it showed.
func (a *attempt) because(end, err error) error {
	cause := a.cause.Load()
	switch {
	case !errors.Is(err, end):
		return fmt.Errorf("%w; before: %w", end, err)
	case cause != nil && (*cause).Error() != err.Error():
		return fmt.Errorf("%w; before: %w", err, *cause)
	default:
		return err
	}
}

// final makes the error that ends the request.
func (a *attempt) final(class, err error) error {
	e := &Error{
		Verb: a.verb, Table: a.table, Row: a.row, Attempts: a.tried, MayHaveApplied: a.maybe,
		Class: class, Err: err,
	}
	if a.region != nil {
		e.Region, e.Server = a.region.Encoded(), a.region.addr
	}
	return e
}

// sleep waits unless the context or the client ends.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.pool.life.Done():
		return ErrClosed
	}
}
