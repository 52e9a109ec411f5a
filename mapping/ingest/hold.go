package ingest

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

// Hold turns the journal road on and says how samples are held in memory.
type Hold struct {
	Time time.Duration // how long a sample waits for others of its row at most; 0: the direct road
	// bytes of samples held; from half of it on they are flushed early, beyond it requests are turned away
	MaxMemory int64
	Merge     bool // make one cell of a row's when its hour has ended

	Term    time.Duration // of this writer's lease; default 15 s
	Address string        // where this process answers other promtsd for the samples it holds; empty: nowhere

	NewDecoder func() Decoder // of the bodies that are replayed
}

const defaultTerm = 15 * time.Second

// buckets is how many parts the hold time has: each series belongs to one, and is flushed when its turn comes.
const buckets = 256

// waiting is the lowest of what samples that wait to be stored are of.
type waiting struct {
	entry uint64 // of the journal
	base  uint32 // base time
}

// none is where no samples wait.
var none = waiting{math.MaxUint64, math.MaxUint32}

func (w waiting) min(o waiting) waiting { return waiting{min(w.entry, o.entry), min(w.base, o.base)} }

// holder is what the journal road adds to an Appender.
type holder struct {
	startBase uint32 // the hour in which the Appender was made
	journal   atomic.Pointer[journal.Writer]
	buckets   [buckets]bucket
	lanes     int
	spread    atomic.Uint32 // gives series their buckets in turn
	early     chan struct{} // has an entry when samples should be flushed before their time
	replaying atomic.Pointer[replaying]

	stop        context.CancelFunc
	stopped     sync.WaitGroup // what stop ends
	stopKeeping context.CancelFunc
	kept        sync.WaitGroup // what stopKeeping ends: the journal is kept until all is flushed
}

func (h *holder) init(now time.Time, s mapping.Schema) {
	h.lanes = lanesOf(s)
	h.startBase = mapping.BaseTime(max(now.UnixMilli(), 0))
	h.early = make(chan struct{}, 1)
	for i := range h.buckets {
		h.buckets[i].oldest, h.buckets[i].taken = none, none
	}
}

// bucket lists series that have something to flush.
type bucket struct {
	flushing sync.Mutex // held by the one who flushes it

	mu      sync.Mutex // may be taken while a series is locked, not the other way round
	members []*series
	oldest  waiting // of the samples that wait here
	taken   waiting // of those that a flush has taken
}

// memberBytes is what a bucket's list takes of memory for a series: it grows by a quarter or more.
const memberBytes = 12

// note lists a series with a row whose oldest waiting sample is of a journal entry, and says by how many bytes the list
// grew. s must be locked.
func (b *bucket) note(s *series, w waiting) (grown int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.oldest = b.oldest.min(w)
	if s.member {
		return 0
	}
	s.member = true
	b.members = append(b.members, s)
	return memberBytes
}

var errNoJournal = fmt.Errorf("%w: the journal is not open", store.ErrUnavailable)

// journaled is the journal road: the request is durable in the journal, and its samples in open rows, when it returns.
func (a *Appender) journaled(ctx context.Context, j *job, req *request.Write, t terms,
	result *request.Result) error {
	w := a.journal.Load()
	if w == nil {
		return errNoJournal
	}
	t.now = a.arrive(t.now) // after all that is in a journal that was lost, see keep
	if err := a.reserve(ctx, t.now); err != nil {
		return err
	}
	if err := a.admit(ctx); err != nil {
		return err
	}
	if req.Body == nil {
		// What came by OTLP has the labels of each series spelt out: it becomes a tenth when it is compressed.
		j.flat = req.AppendFlat(j.flat[:0])
		j.body = s2.Encode(j.body[:cap(j.body)], j.flat)
		flat := *req
		flat.Encoding, flat.Body = request.EncodingFlatBlock, j.body
		req = &flat
	}
	e := journal.Entry{
		Encoding: req.Encoding, Body: req.Body, Arrived: t.now, Latest: t.latest, NeedMetricName: req.NeedMetricName,
		RefuseInfinities: t.limits.RefuseInfinities, UIDsDamaged: result.Refused[request.ReasonUIDDamaged] > 0,
		MaxLabels: t.limits.Labels, MaxLabelName: t.limits.LabelName, MaxLabelValue: t.limits.LabelValue,
	}
	if err := w.Write(ctx, &e, func(number uint64) { a.place(j, req, t, number, result) }); err != nil {
		return err
	}
	if err := a.applyIndex(ctx, j); err != nil {
		return err
	}
	return w.Confirm(ctx)
}

// applyIndex makes the rows of the batch durable: those of the index, and what comes beside the samples.
func (a *Appender) applyIndex(ctx context.Context, j *job) error {
	if j.batch.Len() == 0 {
		return nil
	}
	if err := a.Apply(ctx, &j.batch); err != nil {
		return fmt.Errorf("store %d cells beside the samples: %w", j.batch.Len(), err)
	}
	a.applied(j)
	return nil
}

const (
	admitWait = time.Second           // how long a request may wait for memory
	admitStep = 20 * time.Millisecond // how often it looks
)

// admit lets a request in if there is memory for its samples, after a short wait if need be.
func (a *Appender) admit(ctx context.Context) error {
	for waited := time.Duration(0); a.table.held.Load() >= a.Hold.MaxMemory; waited += admitStep {
		a.flushEarly()
		if waited >= admitWait {
			a.metrics.turnedAway.Inc()
			return fmt.Errorf(
				"%w: samples that wait to be stored fill the %d bytes of --write.max-buffered-bytes: the store is too "+
					"slow, or the limit too small", store.ErrUnavailable, a.Hold.MaxMemory)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(admitStep):
		}
	}
	return nil
}

// place puts the samples into open rows, and the index rows that are missing into the batch.
func (a *Appender) place(j *job, req *request.Write, t terms, number uint64, result *request.Result) {
	grown, repeats := 0, 0
	var held *lot // the one that is locked, nil: none
	for i, s := range j.series {
		if s == nil {
			continue
		}
		rs := &req.Series[i]
		samples := req.Samples[rs.From:rs.To]
		if seat := j.seats[i]; seat.lot != nil {
			held = held.lockNext(seat.lot)
			samples = samples[held.stage(seat.number, samples, &t):]
		}
		var refused refusals
		if len(samples) > 0 {
			held.unlock()
			s = a.lock(s)
			j.series[i], held = s, s.lot
			var more, again int
			more, again, refused = a.placeSeries(j, s, samples, t, number)
			s.sit()
			grown, repeats = grown+more, repeats+again
		}
		if refused == (refusals{}) {
			result.Written += rs.To - rs.From
		} else {
			told := *rs
			told.Labels = req.LabelsOf(i)
			refused.tell(result, told, t)
		}
	}
	held.unlock()
	if len(req.Histograms) > 0 {
		more, again := a.placeHistograms(j, req, t, number, result)
		grown, repeats = grown+more, repeats+again
	}
	if a.table.held.Add(int64(grown)); a.short() {
		a.flushEarly()
	}
	if repeats > 0 {
		a.metrics.repeats.Add(float64(repeats))
	}
}

// lock locks a series that the table holds: s, or what has taken its place.
func (a *Appender) lock(s *series) *series {
	for {
		s.lock()
		if !s.dropped {
			return s
		}
		s.unlock()
		s = a.table.revive(s)
	}
}

func (a *Appender) placeSeries(
	j *job, s *series, samples []request.Sample, t terms, number uint64,
) (grown, repeats int, refused refusals) {
	var noted mapping.Day
	someNoted := false
	for _, sample := range samples {
		if !t.takes(sample, &refused) {
			continue
		}
		row := &s.current
		offset := sample.T - int64(row.base)*1000
		if uint64(offset) >= mapping.HourMs || !row.open {
			base := mapping.BaseTime(sample.T)
			var opened int
			row, opened = s.openRow(base, a.startBase)
			grown += opened
			offset = sample.T - int64(base)*1000
		}
		if !row.indexed {
			day := mapping.DayOf(sample.T)
			if row.indexed = s.indexed(day); !row.indexed && (!someNoted || noted != day) {
				a.putIndex(j, s, day, t.now)
				noted, someNoted = day, true
			}
		}
		if !row.waiting() {
			grown += a.note(s, waiting{number, row.base})
		}
		more, repeat := row.add(uint32(offset), sample.V)
		if repeat {
			repeats++
		}
		grown += more
	}
	s.arrived = max(s.arrived, t.now)
	return grown, repeats, refused
}

// note lists a series that has samples of a journal entry to be flushed, and says by how many bytes that takes. s must
// be locked.
func (a *Appender) note(s *series, w waiting) (grown int) {
	if s.bucket == 0 {
		s.bucket = uint16(a.bucketOf(s)) + 1
	}
	return a.buckets[s.bucket-1].note(s, w)
}

// Buffered calls f with the points of series that are acknowledged and may not be in the data table yet: for each TSUID
// that is known here, by its position, and each of its hours from one base time to another, both included. points is a
// point list (see mapping.AppendPoint) in order of arrival, and only f's until it returns. The hours of a TSUID come in
// ascending order. Whoever asks here first and reads the data table then misses nothing. There are no warnings.
func (a *Appender) Buffered(
	_ context.Context, tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte),
) (warnings []error) {
	for i, tsuid := range tsuids {
		s := a.table.get(tsuid)
		if s == nil {
			continue
		}
		s.lock()
		for r := range s.rowsFrom(from) {
			if r.base > to {
				break
			}
			if len(r.points) > 0 {
				f(i, r.base, r.points)
			}
		}
		s.unlock()
	}
	return nil
}

// frontier is the number below which the samples of all journal entries are in the data table.
func (a *Appender) frontier(w *journal.Writer) uint64 {
	frontier := w.OldestInFlight() // first: what is under way now is in a bucket a moment later
	return min(frontier, a.waiting().entry)
}

// waiting is the lowest of all samples that wait.
func (a *Appender) waiting() waiting {
	lowest := none
	for i := range a.buckets {
		b := &a.buckets[i]
		b.mu.Lock()
		lowest = lowest.min(b.oldest).min(b.taken)
		b.mu.Unlock()
	}
	return lowest
}

// OldestBuffered is the lowest base time that Buffered may find points of; math.MaxUint32: there are none. What was
// acknowledged before the call, and is older, is in the data table.
func (a *Appender) OldestBuffered() uint32 { return a.waiting().base }

// flushEarly wakes the flusher before its time.
func (a *Appender) flushEarly() {
	select {
	case a.early <- struct{}{}:
	default:
	}
}
