package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest/recovery"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
)

// Decoder reads bodies that requests came with, one at a time.
type Decoder interface {
	// Decode fills req from a body, whose memory and the decoder's it uses until the next call. mapping.ErrNewer says that
	// the encoding is not known.
	Decode(encoding byte, body []byte, req *request.Write) error
}

// recoveryConfig gives the samples of replayed entries to this Appender.
func (a *Appender) recoveryConfig() recovery.Config {
	return recovery.Config{
		Journal: a.journalConfig(), Write: a.buffered(), OldestEntry: a.table.OldestEntry,
		Lost: a.lost, NewReplayer: a.newReplayer, NewSingleReplayer: a.newSingleReplayer,
	}
}

func (a *Appender) journalConfig() journal.Config {
	c := &a.config
	return journal.Config{
		Store: c.Store, Tables: c.Settings.Tables, Address: c.Buffer.Address, LeaseTTL: c.Buffer.LeaseTTL,
		SingleProcess: c.SingleProcess, Logger: c.Logger, First: 1, Future: c.Limits.Future,
	}
}

// lost sees to it that what arrives from now on counts over what another process replays of the own journal; see
// replayer.Replay.
func (a *Appender) lost() { a.table.RaiseFloor(a.highWater.arrive(0) + 2) }

// newReplayer returns a replayer for the journal of a dead writer.
func (a *Appender) newReplayer(samples *atomic.Int64) (r journal.Replayer, end func()) {
	if a.config.SingleProcess {
		return &replayer{a: a, samples: samples}, func() {}
	}
	apart := a.forReplay() // samples that came here since are later than those of the journal
	part := apart.config.Buffer.MaxBytes / 2
	a.table.SetAside(part) // of the memory of this one, meanwhile
	return &replayer{a: apart, samples: samples}, func() { a.table.SetAside(-part) }
}

// newSingleReplayer returns a replayer for one entry that has no lease.
func (a *Appender) newSingleReplayer(samples *atomic.Int64) journal.Replayer {
	return &replayer{a: a.forReplay(), single: true, samples: samples}
}

// forReplay returns an Appender for a replay whose samples must not be mixed with what comes meanwhile: they get
// cells of their own, with the times at which they arrived. It uses a quarter of the memory that this one may.
func (a *Appender) forReplay() *Appender {
	c := a.config
	c.Registerer = nil
	c.Limits.Active = 0 // what another was sent is active there
	c.CacheSize /= 4
	c.Buffer.MaxBytes /= 2 // from half of it on it flushes early
	other := newAppender(c)
	other.highWater = a.highWater
	other.metrics, _ = newMetrics(nil, other) // nothing is registered
	return other
}

// Retry replays an entry that is in quarantine (journal.Retry), and says how many samples of it are stored. c is that
// of an Appender in buffered mode; one that runs on the store may go on.
func Retry(ctx context.Context, c Config, writer journal.ID, number uint64) (samples int, ok bool, err error) {
	a, err := New(c)
	if err != nil {
		return 0, false, err
	}
	var stored atomic.Int64
	ok, err = journal.Retry(ctx, a.journalConfig(), writer, number, &replayer{a: a, single: true, samples: &stored})
	return int(stored.Load()), ok, err
}

// replayer puts the samples of a journal that is taken over where those of requests go.
type replayer struct {
	a       *Appender
	single  bool // there are no entries before and after
	buffers sync.Pool
	samples *atomic.Int64 // that were replayed
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
	p, _ := r.buffers.Get().(*replayBuffers)
	if p == nil {
		p = &replayBuffers{}
		if a.config.Buffer.NewDecoder != nil {
			p.decoder = a.config.Buffer.NewDecoder()
		}
	}
	defer func() {
		p.job.reset()
		r.buffers.Put(p)
	}()
	if err := p.decode(e); err != nil {
		return err
	}
	p.req.NeedMetricName = e.NeedMetricName
	ad := admission{
		Admission: request.Admission{Latest: e.Latest, RefuseInfinities: e.RefuseInfinities},
		limits:    Limits{Labels: e.MaxLabels, LabelName: e.MaxLabelName, LabelValue: e.MaxLabelValue},
		arrived:   e.Arrived, replay: true,
	}
	if !r.single {
		// The cells must count over those that were flushed in the very millisecond in which the request came. Of a single
		// entry nobody knows whether it came before or after these.
		ad.arrived++
	}
	var result request.Result
	p.req.Metadata = p.req.Metadata[:0] // what was acknowledged is durable, and may have been replaced since
	err := a.find(ctx, &p.job, &p.req, ad, &result)
	if err != nil {
		return err
	}
	a.putExemplars(&p.job, &p.req, ad, &result)
	if err := turn.Wait(ctx); err != nil {
		return err
	}
	if a.buffered() {
		// Finish waits for the flush. Until then an own journal that goes on in the same rows is kept as a whole.
		a.buffer(&p.job, &p.req, ad, 0, &result)
		turn.Pass()
		err = a.applyBatch(ctx, &p.job)
	} else {
		err = a.writeThrough(ctx, &p.job, &p.req, ad, &result)
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
func (r *replayer) Full() bool { return r.a.buffered() && r.a.table.Pressed() }

// Finish implements journal.Replayer.
func (r *replayer) Finish(ctx context.Context) error { return r.a.flushAll(ctx) }
