package client

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// fetcher is the side of a scan that talks to servers. It goes from region to region, with one scanner at a time, and
// knows at every moment where another scanner would have to start: at start, or behind the last row of last.
type fetcher struct {
	c       *Client
	spec    *Scan
	attempt *attempt

	out  chan *chunk // closed by run, after err was set
	free chan *chunk // chunks to be used again
	err  error

	scan  wire.Scan // of the next scanner; its Start is where it starts
	limit int       // rows still wanted; 0: no limit

	// The open scanner; region is nil when there is none.
	region  *Region
	conn    *rpc.Conn
	id      uint64
	seq     uint64
	lease   time.Duration
	request wire.ScanRequest

	// What a scanner that takes over has to know. The read point of the one before is not part of it: a region that was
	// compacted meanwhile has no cell left of one that was written anew since, and the row would be missed.
	last    *rpc.Response // the last one with rows since the scan's Start was set
	partial bool          // its last row may not be complete
	again   bool          // the next chunk begins with that row anew, if there is anything left of it
}

// prefetch is the number of responses that wait for the consumer beside the one it works on.
const prefetch = 1

func newFetcher(c *Client, spec *Scan) *fetcher {
	f := &fetcher{
		c: c, spec: spec, attempt: c.attempt("scan", spec.Table, nil), limit: spec.Limit,
		// The consumer has one, the channel none, and the fetcher one.
		out: make(chan *chunk), free: make(chan *chunk, prefetch+1),
		scan: wire.Scan{
			Columns: wireColumns(spec.Columns), Start: spec.Start, Stop: spec.Stop, Filter: spec.Filter,
			TimeRange: spec.TimeRange, NoCache: spec.NoCache, MaxResultSize: defaultResponseBytes,
			Reversed: spec.Reversed, ReadType: spec.Read,
		},
	}
	if spec.ResponseBytes > 0 {
		f.scan.MaxResultSize = uint64(spec.ResponseBytes)
	}
	if spec.Reversed {
		f.scan.Start, f.scan.StartExclusive = spec.Stop, len(spec.Stop) > 0
		f.scan.Stop, f.scan.StopInclusive = spec.Start, true
	}
	for range prefetch + 1 {
		f.free <- new(chunk)
	}
	return f
}

// run fetches until the end, an error, or that of ctx.
func (f *fetcher) run(ctx context.Context) {
	defer close(f.out)
	defer f.end()
	for more := true; more; {
		var ch *chunk
		select {
		case ch = <-f.free:
		case <-ctx.Done():
			f.err = f.ended(ctx)
			return
		}
		more, f.err = f.fetch(ctx, ch)
		if f.err != nil {
			ch.release()
			return
		}
		if ch.response == nil { // nothing in it
			f.free <- ch
			continue
		}
		if !f.hand(ctx, ch) {
			ch.release()
			f.err = f.ended(ctx)
			return
		}
	}
}

// ended is the error of a scan whose context ended between two requests: without it the rows so far would look like
// all.
func (f *fetcher) ended(ctx context.Context) error {
	return &Error{Verb: "scan", Table: f.spec.Table, Class: ErrUnavailable, Err: context.Cause(ctx)}
}

// hand gives a chunk to the consumer, and keeps the scanner alive meanwhile. It returns false when ctx ends.
func (f *fetcher) hand(ctx context.Context, ch *chunk) bool {
	select { // most often the consumer waits already, and no timer is needed
	case f.out <- ch:
		return true
	default:
	}
	interval := max(f.lease/3, 10*time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case f.out <- ch:
			return true
		case <-ctx.Done():
			return false
		case <-tick.C:
			f.renew(ctx)
		}
	}
}

// fetch gets the next response into ch, and returns false after the last one. When ch has none afterwards it had no
// rows.
func (f *fetcher) fetch(ctx context.Context, ch *chunk) (more bool, err error) {
	ctx, cancel := f.c.bounded(ctx)
	defer cancel()
	a := f.attempt
	defer a.watch().Stop()
	a.tried = 0
	for {
		err := f.call(ctx, ch)
		if err == nil {
			return f.progress(ch), nil
		}
		ch.release()
		f.lose()
		if _, err := a.failed(ctx, err); err != nil {
			return false, err
		}
	}
}

// call makes one request: it opens a scanner when there is none, and asks for more of one that there is.
func (f *fetcher) call(ctx context.Context, ch *chunk) error {
	ctx, cancel := context.WithTimeout(ctx, f.c.cfg.RPCTimeout)
	defer cancel()
	opens := f.region == nil
	if opens {
		if err := f.open(ctx); err != nil {
			return err
		}
	} else {
		f.request = wire.ScanRequest{ScannerID: f.id, CallSeq: f.seq}
		f.seq++
	}
	f.request.Rows = defaultScanRows
	if f.spec.Rows > 0 {
		f.request.Rows = uint32(min(f.spec.Rows, 1<<31-1))
	}
	if f.limit > 0 {
		f.request.LimitOfRows = uint32(min(f.limit, 1<<31-1))
		f.request.Rows = min(f.request.Rows, f.request.LimitOfRows)
	}
	response, err := f.conn.CallMessage(ctx, wire.MethodScan, &f.request)
	if err != nil {
		return err
	}
	ch.response, ch.again = response, false
	if err := ch.answer.Parse(response.Param); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	if opens {
		f.id, f.seq = ch.answer.ScannerID, 0
		f.lease = time.Duration(ch.answer.Lease) * time.Millisecond
		f.region = f.attempt.region
	}
	return nil
}

// open prepares the request that opens a scanner at the present position.
func (f *fetcher) open(ctx context.Context) error {
	a := f.attempt
	a.row = f.scan.Start
	below := f.spec.Reversed && (f.scan.StartExclusive || len(f.scan.Start) == 0)
	if err := a.placeAt(ctx, below); err != nil {
		return err
	}
	region := a.region
	conn, err := f.c.pool.bulk(ctx, region.addr)
	if err != nil {
		return err
	}
	f.conn = conn
	f.request = wire.ScanRequest{Region: region.Name, Scan: &f.scan}
	return nil
}

// progress takes note of where a response has got to, and returns false when it was the last one. It takes the response
// out of ch when it has no rows.
func (f *fetcher) progress(ch *chunk) (more bool) {
	results := ch.answer.Results
	if n := len(results); n > 0 {
		f.forget()
		f.last, f.partial = ch.response, results[n-1].Partial
		f.last.Retain()
		ch.again, f.again = f.again, false
		if f.limit > 0 {
			for i := range results {
				if !results[i].Partial {
					f.limit--
				}
			}
			// The assembler counts exactly; a row that is complete although it was marked partial is not counted here.
			f.limit = max(f.limit, 1)
		}
	} else {
		ch.release()
	}
	if ch.answer.More && ch.answer.MoreInRegion {
		return true
	}
	region := f.region
	f.region = nil // its scanner is closed
	if !ch.answer.More {
		return false
	}
	return f.leave(region)
}

// leave moves the position behind a region that is exhausted, and returns false when that was the last one.
func (f *fetcher) leave(region *Region) (more bool) {
	f.forget()
	if f.spec.Reversed {
		if len(region.Start) == 0 || bytes.Compare(region.Start, f.spec.Start) <= 0 {
			return false
		}
		f.scan.Start, f.scan.StartExclusive = region.Start, true
		return true
	}
	if len(region.End) == 0 || len(f.spec.Stop) > 0 && bytes.Compare(region.End, f.spec.Stop) >= 0 {
		return false
	}
	f.scan.Start, f.scan.StartExclusive = region.End, false
	return true
}

// lose gives the scanner up and moves the position to where another one has to start: behind the last row, or at it
// when only a part of it has come. A request whose answer was lost is never repeated: its rows would be missed.
func (f *fetcher) lose() {
	if f.region != nil {
		f.close()
	}
	if f.last == nil {
		return
	}
	f.scan.Start = lastRow(f.last.Cells)
	f.scan.StartExclusive = !f.partial
	f.again = f.partial
	f.forget()
}

// lastRow is a copy of the row of the last cell of a block.
func lastRow(block []byte) []byte {
	it, row := wire.NewCellIter(block), []byte(nil)
	for it.Next() {
		row = it.Cell.Row
	}
	return bytes.Clone(row)
}

// forget lets go of the response that the position was in.
func (f *fetcher) forget() {
	if f.last != nil {
		f.last.Release()
		f.last = nil
	}
}

// end is called when no more is wanted.
func (f *fetcher) end() {
	if f.region != nil {
		f.close()
	}
	f.forget()
}

// closeTimeout bounds the attempt to close a scanner, whose lease ends anyway.
const closeTimeout = 5 * time.Second

// close closes the scanner on the server, without waiting for that.
func (f *fetcher) close() {
	conn, id := f.conn, f.id
	f.region = nil
	f.c.pool.begin(func() {
		ctx, cancel := context.WithTimeout(f.c.pool.life, closeTimeout)
		defer cancel()
		response, err := conn.CallMessage(ctx, wire.MethodScan, &wire.ScanRequest{ScannerID: id, Close: true})
		if err == nil {
			response.Release()
		}
	})
}

// renew keeps the scanner alive while the consumer is busy. One that cannot be renewed is replaced when it is needed.
func (f *fetcher) renew(ctx context.Context) {
	if f.region == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.c.cfg.RPCTimeout)
	defer cancel()
	response, err := f.conn.CallMessage(ctx, wire.MethodScan,
		&wire.ScanRequest{ScannerID: f.id, CallSeq: f.seq, Renew: true})
	f.seq++
	if err != nil {
		f.lose()
		return
	}
	response.Release()
}
