// Package ingest is the write path: the series of a remote-write request are found by their label bytes, their samples
// become cells, and the cells are durable before Append returns.
package ingest

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// Limits bound what a series may look like and how far ahead of the clock a sample may be.
type Limits struct {
	Labels     int           // labels of a series, its name included
	LabelName  int           // bytes of a label's name
	LabelValue int           // bytes of a label's value, and of a metric name
	Future     time.Duration // how far ahead of the clock a sample may be; 0: any time

	// RefuseInfinities refuses infinite values, of which a single one makes OpenTSDB fail a query that meets it.
	RefuseInfinities bool
}

// Config is what an Appender needs.
type Config struct {
	Store      store.Store
	Settings   catalog.Settings
	UIDs       *uid.Registry
	Limits     Limits
	CacheSize  int                   // series kept by their label bytes
	Registerer prometheus.Registerer // may be nil
	Now        func() time.Time
}

// Appender writes requests. It is safe for concurrent use.
type Appender struct {
	Config
	index   index.Writer
	cache   *cache
	jobs    sync.Pool // *job
	metrics metrics
}

// New returns an Appender.
func New(c Config) *Appender {
	a := &Appender{Config: c, index: index.Writer{Tables: c.Settings.Tables}, cache: newCache(c.CacheSize)}
	a.jobs.New = func() any { return new(job) }
	a.metrics = newMetrics(c.Registerer, a.cache)
	return a
}

// Append stores the samples of req: those of the result are durable and readable when it returns. Samples that can
// never be stored are refused one by one in the result, and cost the others nothing. An error means that some or none
// of the request is stored, and that it may be sent again: a sample that is there already is written over with itself.
//
// req is not changed, and nothing of it is kept.
func (a *Appender) Append(ctx context.Context, req *mapping.WriteRequest) (mapping.WriteResult, error) {
	j := a.jobs.Get().(*job)
	defer func() {
		j.reset()
		a.jobs.Put(j)
	}()
	now := a.Now().UnixMilli()
	var result mapping.WriteResult
	if err := a.find(ctx, j, req, &result); err != nil {
		return mapping.WriteResult{}, err
	}
	a.encode(j, req, now, &result)
	if j.batch.Len() > 0 {
		if err := a.Store.Apply(ctx, &j.batch); err != nil {
			return mapping.WriteResult{}, fmt.Errorf("store %d samples: %w", result.Written, err)
		}
	}
	for _, n := range j.indexed {
		n.series.mu.Lock()
		n.series.setIndexed(n.day)
		n.series.mu.Unlock()
	}
	a.metrics.samples.Add(float64(result.Written))
	return result, nil
}

// job is the memory of one Append, used again by the next.
type job struct {
	series  []*series // by position in the request; nil: refused
	missing []int     // positions whose series is not in the cache
	batch   store.Batch
	row     []byte
	cell    []byte
	scratch []byte
	indexed []indexedDay
}

// indexedDay is an index row that the batch holds.
type indexedDay struct {
	series *series
	day    index.Day
}

func (j *job) reset() {
	clear(j.series) // let go of series that the cache has dropped
	clear(j.indexed)
	j.series, j.missing, j.indexed = j.series[:0], j.missing[:0], j.indexed[:0]
	j.batch.Reset()
}

// find fills j.series, making the series that are not known yet.
func (a *Appender) find(ctx context.Context, j *job, req *mapping.WriteRequest, result *mapping.WriteResult) error {
	for i := range req.Series {
		raw := req.Series[i].Labels
		s := a.cache.get(maphash.Bytes(a.cache.seed, raw), raw)
		if s == nil || s.nameless && req.NeedMetricName {
			s = nil
			j.missing = append(j.missing, i)
		}
		j.series = append(j.series, s)
	}
	if len(j.missing) == 0 {
		return nil
	}
	return a.resolve(ctx, j, req, result)
}

// encode turns the samples into cells of the batch, and adds the index rows that are missing.
func (a *Appender) encode(j *job, req *mapping.WriteRequest, now int64, result *mapping.WriteResult) {
	latest := int64(mapping.MaxTime)
	if a.Limits.Future > 0 {
		latest = min(latest, now+a.Limits.Future.Milliseconds())
	}
	given := int64(0)
	for i, s := range j.series {
		if s == nil {
			continue
		}
		rs := req.Series[i]
		s.mu.Lock()
		refused := a.encodeSeries(j, s, req.Samples[rs.From:rs.To], now, latest)
		given = max(given, s.runTime)
		s.mu.Unlock()
		result.Written += rs.To - rs.From - refused.times - refused.infinities
		if refused.times > 0 {
			result.Refuse(mapping.ReasonTimestamp, refused.times, a.timeError(rs.Labels, refused.time, now))
		}
		if refused.infinities > 0 {
			result.Refuse(mapping.ReasonInfinity, refused.infinities, fmt.Errorf(
				"series %s: %w: infinite value, refused by --no-write.infinities", formatLabels(rs.Labels), mapping.ErrInvalid))
		}
	}
	a.cache.gave(given)
}

// refusals counts the samples of one series that were refused.
type refusals struct {
	times, infinities int
	time              int64 // the first refused time
}

// encodeSeries does so for one series.
func (a *Appender) encodeSeries(
	j *job, s *series, samples []mapping.Sample, now, latest int64,
) (refused refusals) {
	const none = ^uint32(0) // no base time: they are multiples of 3600
	base, noted := none, false
	var day index.Day
	for _, sample := range samples {
		if sample.T < 0 || sample.T > latest {
			if refused.times++; refused.times == 1 {
				refused.time = sample.T
			}
			continue
		}
		if a.Limits.RefuseInfinities && math.IsInf(sample.V, 0) {
			refused.infinities++
			continue
		}
		if b := mapping.BaseTime(sample.T); b != base {
			if base == none {
				j.row = append(j.row[:0], s.row...)
			}
			base = b
			a.Settings.Schema.SetBaseTime(j.row, base)
			if d := index.DayOf(sample.T); !noted || d != day {
				day, noted = d, true
				a.putIndex(j, s, day, now)
			}
		}
		var flags byte
		j.cell, flags = mapping.AppendValue(j.cell[:0], sample.V)
		value := len(j.cell)
		j.cell = mapping.AppendQualifier(j.cell, uint32(sample.T-int64(base)*1000), flags)
		j.batch.Put(a.Settings.Tables.Data, j.row, catalog.FamilyData, j.cell[value:], s.cellTime(sample.T, now),
			j.cell[:value])
	}
	return refused
}

// putIndex adds the index rows of a series for a day, unless they are known to be there.
func (a *Appender) putIndex(j *job, s *series, day index.Day, now int64) {
	if s.indexed(day) {
		return
	}
	if s.days == 0 {
		a.index.PutSeries(&j.batch, s.tsuid, now)
	}
	j.scratch = a.index.PutDay(&j.batch, s.tsuid, day, now, j.scratch)
	j.indexed = append(j.indexed, indexedDay{s, day})
}

// timeError says what is wrong with a refused time of a series.
func (a *Appender) timeError(raw []byte, t, now int64) error {
	err := mapping.CheckTime(t)
	if err == nil {
		err = fmt.Errorf("%w: timestamp %s is %s ahead of the clock, --write.max-future allows %s: check the sender's clock",
			mapping.ErrInvalid, time.UnixMilli(t).UTC().Format(time.RFC3339Nano),
			(time.Duration(t-now) * time.Millisecond), a.Limits.Future)
	}
	return fmt.Errorf("series %s: %w", formatLabels(raw), err)
}
