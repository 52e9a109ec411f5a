package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// masterPlace is the address of the active master as far as is known; nil: ask the registry.
type masterPlace struct{ atomic.Pointer[string] }

// askMaster repeats a call to the master until it is answered. A master that is gone, or starting, is looked up again.
// Calls that change something carry a nonce, or do no harm when they come twice.
func (c *Client) askMaster(
	ctx context.Context, a *attempt, method string, request wire.Message, read func(answer []byte) error,
) error {
	return c.repeat(ctx, a, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.RPCTimeout)
		defer cancel()
		addr, err := c.masterAddr(ctx)
		if err != nil {
			return &lookupError{err}
		}
		err = c.callMaster(ctx, *addr, method, request, read)
		if err != nil {
			c.master.CompareAndSwap(addr, nil) // whatever it is, asking where the master is costs little
			err = fmt.Errorf("master %s: %w", *addr, err)
		}
		return err
	})
}

func (c *Client) masterAddr(ctx context.Context) (*string, error) {
	if addr := c.master.Load(); addr != nil {
		return addr, nil
	}
	ctx, cancel := c.living(ctx)
	defer cancel()
	server, err := c.reg.master(ctx)
	if err != nil {
		return nil, err
	}
	addr := server.Addr()
	c.master.Store(&addr)
	return &addr, nil
}

func (c *Client) callMaster(
	ctx context.Context, addr, method string, request wire.Message, read func(answer []byte) error,
) error {
	conn, err := c.pool.conn(ctx, slotKey{addr: addr, service: wire.MasterService})
	if err != nil {
		return err
	}
	response, err := conn.CallMessage(ctx, method, request)
	if err != nil {
		return err
	}
	defer response.Release()
	return read(response.Param)
}

// procedure makes a call that starts a procedure of the master, and waits for its end.
func (c *Client) procedure(ctx context.Context, verb, table, method string, request wire.Message) error {
	return c.withTimeout(ctx, func(ctx context.Context) error {
		a := c.change(verb, table, nil)
		var id uint64
		var started bool
		err := c.askMaster(ctx, a, method, request, func(answer []byte) (err error) {
			id, started, err = wire.ParseProcedureID(answer)
			return err
		})
		if err != nil || !started {
			return err
		}
		a.maybe = true
		return c.await(ctx, a, id)
	})
}

// lostAfter is the number of times in a row that a procedure must not be found before it is taken for lost: a master
// that has just taken over may not know it yet.
const lostAfter = 20

// errLost says that the master knows nothing of a procedure that it, or another one, has accepted.
var errLost = errors.New("the master does not know the procedure any more")

// await polls a procedure until it ends.
func (c *Client) await(ctx context.Context, a *attempt, id uint64) error {
	var result wire.ProcedureResult
	unknown := 0
	for poll := 10 * time.Millisecond; ; poll = min(poll*3/2, time.Second) {
		err := c.askMaster(ctx, a, wire.MethodGetProcedureResult, &wire.ProcedureRequest{ID: id},
			func(answer []byte) error { return result.Parse(answer) })
		switch {
		case err != nil:
			return err
		case result.State == wire.ProcedureFinished && result.Exception == nil:
			return nil
		case result.State == wire.ProcedureFinished:
			return a.final(cmp.Or(policyOf(result.Exception).err, ErrRejected), result.Exception)
		case result.State == wire.ProcedureNotFound:
			if unknown++; unknown >= lostAfter {
				return a.final(ErrUnavailable, errLost)
			}
		default:
			unknown = 0
		}
		a.tried = 0
		if err := c.sleep(ctx, poll); err != nil {
			return a.final(ErrUnavailable, err)
		}
	}
}

// nonce is a new nonce for a call to the master.
func (c *Client) nonce() wire.Nonce { return wire.Nonce{Group: c.nonces, Value: nonce()} }

// onServer repeats a call to the AdminService of the server of a region.
func (c *Client) onServer(
	ctx context.Context, a *attempt, method string, request func(region []byte) wire.Message,
) error {
	return c.repeat(ctx, a, func(ctx context.Context) error {
		if err := a.place(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, c.cfg.RPCTimeout)
		defer cancel()
		conn, err := c.pool.conn(ctx, slotKey{addr: a.region.addr, service: wire.AdminService})
		if err != nil {
			return err
		}
		var response *rpc.Response
		if response, err = conn.CallMessage(ctx, method, request(a.region.Name)); err != nil {
			return err
		}
		response.Release()
		return nil
	})
}
