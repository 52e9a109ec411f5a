// Package ingest is the write path: the series of a remote-write request are found by their label bytes, their samples
// become cells, and the cells are durable before Append returns.
package ingest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// Limits bound what a series may look like and how far ahead of the clock a sample may be.
type Limits struct {
	Active     int           // series with samples within the last hour, of the process; 0: any number
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
	Logger     *slog.Logger          // nil: discard
	Now        func() time.Time
	Hold       Hold // the zero value is the direct road

	// Apply takes the batches with samples of new series, and days, to the store: that of an index in memory, which looks
	// into them; nil: the store's.
	Apply func(context.Context, *store.Batch) error

	// Writable says why new data should not be written at present; nil: it may always be.
	Writable func() error

	Alone bool // no other process can have the store open
}

// Appender writes requests, on one of two roads. The direct road writes a cell for each sample before the request is
// acknowledged. The journal road (Config.Hold) writes the request as it came into the journal before it is
// acknowledged, keeps the samples in open rows in memory, where queries find them by Buffered, and makes one cell of
// many. It is safe for concurrent use.
type Appender struct {
	Config
	index   index.Writer
	rows    exemplars.Rows
	meta    *families.Writer
	cache   *cache
	symbols *symbols
	table   *table
	jobs    sync.Pool // *job
	metrics metrics
	ahead   *ahead
	active  *activity
	holder

	toldDamage atomic.Int64 // when it was last logged, in seconds since 1970
}

// New returns an Appender. It must be started before it appends on the journal road.
func New(c Config) *Appender {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Apply == nil {
		c.Apply = c.Store.Apply
	}
	if c.Hold.Term == 0 {
		c.Hold.Term = defaultTerm
	}
	a := &Appender{Config: c, index: index.Writer{Tables: c.Settings.Tables}, cache: newCache(c.CacheSize),
		symbols: newSymbols(c.CacheSize)}
	a.rows, a.meta = exemplars.NewRows(c.Settings.Schema), families.NewWriter(c.Store, c.Settings.Tables)
	a.table, a.ahead = a.cache.table, new(ahead)
	a.active = newActivity(c.Limits.Active, c.Logger)
	a.jobs.New = func() any { return new(job) }
	a.init(c.Now(), c.Settings.Schema)
	a.metrics = newMetrics(c.Registerer, a)
	return a
}

// Append stores the samples of req, and what comes beside them: those of the result are durable and readable when it
// returns. What can never be stored is refused one by one in the result, and costs the others nothing. An error means
// that some or none of the request is stored, and that it may be sent again: a sample that is there already is written
// over with itself.
//
// Of req nothing is changed but what LabelsOf changes, and nothing is kept.
func (a *Appender) Append(ctx context.Context, req *request.Write) (request.Result, error) {
	if a.Writable != nil {
		if err := a.Writable(); err != nil {
			return request.Result{}, err
		}
	}
	j := a.jobs.Get().(*job)
	defer func() {
		j.reset()
		a.jobs.Put(j)
	}()
	t := newTerms(a.Limits, a.Now().UnixMilli())
	t.now = a.arrive(t.now)
	var result request.Result
	err := a.reserve(ctx, t.now)
	if err == nil {
		err = a.find(ctx, j, req, t, &result)
	}
	if err == nil {
		a.putBeside(ctx, j, req, t, &result)
	}
	switch {
	case err != nil:
	case !slices.ContainsFunc(j.series, func(s *series) bool { return s != nil }):
		err = a.applyIndex(ctx, j)
	case a.Hold.Time > 0:
		err = a.journaled(ctx, j, req, t, &result)
	default:
		err = a.direct(ctx, j, req, t, &result)
	}
	if err != nil {
		return request.Result{}, err
	}
	a.metrics.samples.Add(float64(result.Written + result.Histograms))
	a.countBeside(j, &result)
	a.tellDamage(&result)
	return result, nil
}

// tellDamage logs now and then that series are refused because the store is damaged: their sender is told, but cannot
// help it.
func (a *Appender) tellDamage(result *request.Result) {
	n := result.Refused[request.ReasonUIDDamaged]
	if n == 0 {
		return
	}
	now, last := a.Now().Unix(), a.toldDamage.Load()
	if now-last >= 60 && a.toldDamage.CompareAndSwap(last, now) {
		a.Logger.Error("samples are refused because the UID table is damaged: repair the cell", "samples", n, "err",
			firstDamage(result))
	}
}

// firstDamage is the first example of a series that was refused because of a damaged UID.
func firstDamage(result *request.Result) error {
	for _, err := range result.Examples {
		if errors.Is(err, mapping.ErrCorrupt) {
			return err
		}
	}
	return mapping.ErrCorrupt
}

// job is the memory of one Append, used again by the next.
type job struct {
	series  []*series // by position in the request; nil: refused
	seats   []seatOf  // of those that the cache has
	missing []int     // positions whose series is not in the cache
	batch   store.Batch
	row     []byte
	cell    []byte
	flat    []byte // the request in its flat form
	body    []byte
	scratch []byte
	stored  []byte // a histogram, and the point list of it
	point   []byte
	tsuid   []byte
	indexed []indexedDay
	beside  beside
	seat    seatOf // of the series that was made last

	numbers []uint32 // of the request's symbols
	epoch   uint32   // of the numbers
	keyed   []byte
}

// key is what the cache knows a series of a request by: its label bytes, or its references by the numbers of their
// symbols. It is valid until the next call.
func (j *job) key(req *request.Write, series int) []byte {
	s := &req.Series[series]
	if s.RefsFrom == s.RefsTo {
		return s.Labels
	}
	j.keyed = appendRefsKey(j.keyed[:0], j.epoch, j.numbers, req.Refs[s.RefsFrom:s.RefsTo])
	return j.keyed
}

// indexedDay is an index row that the batch holds.
type indexedDay struct {
	series *series
	day    mapping.Day
}

func (j *job) reset() {
	clear(j.series) // let go of series that the cache has dropped
	clear(j.seats)
	clear(j.indexed)
	j.series, j.seats, j.missing, j.indexed = j.series[:0], j.seats[:0], j.missing[:0], j.indexed[:0]
	j.batch.Reset()
	j.beside.reset()
}

// applied notes that the rows of the batch are durable.
func (a *Appender) applied(j *job) {
	if len(j.beside.changes) > 0 {
		a.meta.Keep(j.beside.changes)
	}
	for _, n := range j.indexed {
		n.series.lock()
		n.series.setIndexed(n.day)
		n.series.unlock()
	}
}

// find fills j.series and j.seats, making the series that are not known yet.
func (a *Appender) find(ctx context.Context, j *job, req *request.Write, t terms,
	result *request.Result) error {
	j.numbers, j.epoch = a.symbols.number(j.numbers, req.Symbols)
	found, _ := req.Finder.(*finder)
	period := a.active.now()
	var e *entry
	for i := range req.Series {
		if found != nil {
			e = found.entries[i]
		} else {
			e = a.findNext(j, e, req, i)
		}
		if e == nil || e.nameless && req.NeedMetricName {
			j.missing = append(j.missing, i)
			j.series, j.seats = append(j.series, nil), append(j.seats, seatOf{})
			continue
		}
		if !e.activeIn(period) && !a.active.admitEntry(e, period, t.replay) {
			a.active.refuse(req, i, result)
			j.series, j.seats = append(j.series, nil), append(j.seats, seatOf{})
			continue
		}
		j.series, j.seats = append(j.series, e.series), append(j.seats, e.seat)
	}
	defer a.active.tell()
	if found != nil {
		found.Reset() // let go of series that the cache will drop
	}
	if len(j.missing) == 0 {
		return nil
	}
	return a.resolve(ctx, j, req, t, period, result)
}

// findNext returns the entry of the series at a position, nil if there is none; before is the entry of the series
// before it.
func (a *Appender) findNext(j *job, before *entry, req *request.Write, series int) *entry {
	s := &req.Series[series]
	if before != nil && s.RefsFrom < s.RefsTo {
		// As after does, without making the key.
		e := before.follower.Load()
		if e != nil && e.held() && isRefsKey(e.raw, j.epoch, j.numbers, req.Refs[s.RefsFrom:s.RefsTo]) {
			e.touch()
			return e
		}
	}
	return a.cache.after(before, j.key(req, series))
}

// putIndex adds the index rows of a series for a day, unless they are known to be there.
func (a *Appender) putIndex(j *job, s *series, day mapping.Day, now int64) {
	if s.indexed(day) {
		return
	}
	j.tsuid = append(j.tsuid[:0], s.tsuid...)
	if s.days == 0 {
		a.index.PutSeries(&j.batch, j.tsuid, now)
	}
	j.scratch = a.index.PutDay(&j.batch, j.tsuid, day, now, j.scratch)
	j.indexed = append(j.indexed, indexedDay{s, day})
}
