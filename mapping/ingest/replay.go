package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
)

// Decoder reads bodies that requests came with, one at a time.
type Decoder interface {
	// Decode fills req from a body, whose memory and the decoder's it uses until the next call. mapping.ErrNewer says that
	// the form is not known.
	Decode(form byte, body []byte, req *request.Write) error
}

// replayer puts the samples of a journal that is taken over where those of requests go.
type replayer struct {
	a        *Appender
	single   bool // there are no entries before and after
	requests sync.Pool
	samples  *atomic.Int64 // that were replayed
}

// replayBuffers is the memory for one entry at a time.
type replayBuffers struct {
	req     request.Write
	job     job
	flat    []byte
	decoder Decoder
}

// Replay implements journal.Replayer.
func (r *replayer) Replay(ctx context.Context, e *journal.Entry, turn *journal.Turn) error {
	a := r.a
	p, _ := r.requests.Get().(*replayBuffers)
	if p == nil {
		p = &replayBuffers{}
		if a.Hold.NewDecoder != nil {
			p.decoder = a.Hold.NewDecoder()
		}
	}
	defer func() {
		p.job.reset()
		r.requests.Put(p)
	}()
	if err := p.decode(e); err != nil {
		return err
	}
	p.req.NeedMetricName = e.NeedMetricName
	t := terms{now: e.Arrived, latest: e.Latest, replay: true, limits: Limits{
		Labels: e.MaxLabels, LabelName: e.MaxLabelName, LabelValue: e.MaxLabelValue, RefuseInfinities: e.RefuseInfinities,
	}}
	if !r.single {
		// The cells shall count over those that were flushed in the very millisecond in which the request came. Of a single
		// entry nobody knows whether it came before or after these.
		t.now++
	}
	var result request.Result
	p.req.Metadata = p.req.Metadata[:0] // what was acknowledged is durable, and may have been replaced since
	err := a.find(ctx, &p.job, &p.req, t, &result)
	if err != nil {
		return err
	}
	a.putBeside(ctx, &p.job, &p.req, t, &result)
	if err := turn.Wait(ctx); err != nil {
		return err
	}
	if a.Hold.Time == 0 {
		err = a.direct(ctx, &p.job, &p.req, t, &result)
	} else {
		// Finish waits for the flush. Until then an own journal that goes on in the same rows is kept as a whole.
		a.place(&p.job, &p.req, t, 0, &result)
		turn.Pass()
		err = a.applyIndex(ctx, &p.job)
	}
	r.samples.Add(int64(result.Written + result.Histograms))
	if n := result.Refused[request.ReasonUIDDamaged]; n > 0 && err == nil && !e.UIDsDamaged {
		err = &journal.EntryError{Class: journal.BadUID,
			Err: fmt.Errorf("%d of its samples are not stored, first of %w", n, firstDamage(&result))}
	}
	return err
}

// decode takes the body of an entry apart.
func (p *replayBuffers) decode(e *journal.Entry) error {
	var err error
	switch e.Encoding {
	case request.EncodingFlat:
		err = p.req.ParseFlat(e.Body)
	case request.EncodingFlatBlock:
		if p.flat, err = s2.Decode(p.flat[:cap(p.flat)], e.Body); err == nil {
			err = p.req.ParseFlat(p.flat)
		}
	default:
		err = p.decoder.Decode(e.Encoding, e.Body, &p.req)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mapping.ErrNewer):
		return &journal.EntryError{Class: journal.Newer, Err: err}
	default:
		return &journal.EntryError{Class: journal.Damaged,
			Err: fmt.Errorf("%w: its body cannot be read: %w", mapping.ErrCorrupt, err)}
	}
}

// Full implements journal.Replayer.
func (r *replayer) Full() bool { return r.a.Hold.Time > 0 && r.a.short() }

// Finish implements journal.Replayer.
func (r *replayer) Finish(ctx context.Context) error { return r.a.flushAll(ctx) }
