package ingest

import (
	"context"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/ingest/seriescache"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

// job is the memory of one Append or replay, used again by the next.
type job struct {
	lookup  seriescache.Lookup
	series  []*memtable.Series // by position in the request; nil: refused
	slots   []memtable.Slot    // of those that the series cache has
	missing []int              // positions whose series is not in the series cache
	slot    memtable.Slot      // of the series that was made last
	batch   store.Batch
	index   index.Writer
	arrived int64
	indexed []indexedDay

	flat, body            []byte // the request in its flat encoding, and compressed
	row, cell, scratch    []byte
	stored, point         []byte // a histogram, and the point list of it
	tsuid, exemplarLabels []byte
	exemplars             exemplars.Writer
	metadata              []families.Change // that the batch holds
	invalid, limited      int               // metadata that cannot be kept, and of which there is too much
}

// indexedDay is an index row that the batch holds.
type indexedDay struct {
	series *memtable.Series
	day    mapping.Day
}

func (j *job) reset() {
	clear(j.series) // let go of series that the series cache has dropped
	clear(j.slots)
	clear(j.indexed)
	j.series, j.slots, j.missing, j.indexed = j.series[:0], j.slots[:0], j.missing[:0], j.indexed[:0]
	j.batch.Reset()
	j.metadata, j.invalid, j.limited = j.metadata[:0], 0, 0
}

// add adds the series at the next position.
func (j *job) add(s *memtable.Series, slot memtable.Slot) {
	j.series, j.slots = append(j.series, s), append(j.slots, slot)
}

// IndexMissing implements memtable.Indexer: it adds the index rows of a series for a day to the batch, unless they are
// known to be durable.
func (j *job) IndexMissing(s *memtable.Series, day mapping.Day) {
	if s.Indexed(day) {
		return
	}
	j.tsuid = append(j.tsuid[:0], s.TSUID()...)
	if !s.InIndex() {
		j.index.PutSeries(&j.batch, j.tsuid, j.arrived)
	}
	j.scratch = j.index.PutDay(&j.batch, j.tsuid, day, j.arrived, j.scratch)
	j.indexed = append(j.indexed, indexedDay{s, day})
}

// applyBatch makes the rows of the batch durable: in buffered mode index rows, exemplars and metadata.
func (a *Appender) applyBatch(ctx context.Context, j *job) error {
	if j.batch.Len() == 0 {
		return nil
	}
	if err := a.config.Apply(ctx, &j.batch); err != nil {
		return fmt.Errorf("store a batch of %d cells: %w", j.batch.Len(), err)
	}
	if len(j.metadata) > 0 {
		a.metadata.Keep(j.metadata)
	}
	for _, n := range j.indexed {
		n.series.Lock()
		n.series.SetIndexed(n.day)
		n.series.Unlock()
	}
	return nil
}

// find fills j.series and j.slots, making the series that are not known yet.
func (a *Appender) find(ctx context.Context, j *job, req *request.Write, ad admission, result *request.Result) error {
	j.index, j.arrived = a.index, ad.arrived
	j.lookup.Begin(a.cache, req)
	period := a.active.now()
	defer a.active.log()
	for i := range req.Series {
		e := j.lookup.Next(req, i)
		switch {
		case e == nil || e.Nameless && req.NeedMetricName:
			j.missing = append(j.missing, i)
			j.add(nil, memtable.Slot{})
		case !e.ActiveIn(period) && !a.active.admitEntry(e, period, ad.replay):
			a.active.refuse(req, i, result)
			j.add(nil, memtable.Slot{})
		default:
			j.add(e.Series, e.Slot)
		}
	}
	j.lookup.End()
	if len(j.missing) == 0 {
		return nil
	}
	return a.resolve(ctx, j, req, ad, period, result)
}
