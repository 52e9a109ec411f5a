// Package ingest is the write path: it finds the series of a request, makes samples durable before Append returns, and
// moves them into the data table. It ties the parts that stand below it:
//
//	seriescache   label bytes -> series
//	memtable      open rows of samples that are durable in the journal
//	rowmerge      open rows -> cells
//	recovery      the own journal's lease; the journals of the dead
//
// It works in one of two modes. In buffered mode a request is written to the journal as it came, its samples go to
// the memtable, where queries find them, and flush workers make one cell of many. In write-through mode each sample
// becomes a cell in the data table before the request is acknowledged.
//
// Order of acknowledgement, in buffered mode: UIDs durable, timestamp high-water mark durable, entry durable, samples
// in the memtable, index rows durable, lease confirmed.
//
// Locks are those of the parts, see there; the lock of the high-water mark is taken with none of them held.
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
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/ingest/recovery"
	"github.com/promtsd/promtsd/mapping/ingest/seriescache"
	"github.com/promtsd/promtsd/mapping/journal"
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

// Config is what an Appender needs. It is read once, by New.
type Config struct {
	Store      store.Store
	Settings   catalog.Settings
	UIDs       *uid.Registry
	Limits     Limits
	CacheSize  int                   // entries of the series cache
	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger          // nil: discard
	Now        func() time.Time
	Buffer     Buffer // the zero value is write-through mode

	// Apply takes the batches with index rows to the store: an index in memory follows them there; nil: Store.Apply.
	Apply func(context.Context, *store.Batch) error

	// Writable says why new data should not be written at present; nil: it may always be.
	Writable func() error

	SingleProcess bool // no other process can have the store open
}

// Buffer configures buffered mode.
type Buffer struct {
	FlushInterval time.Duration // how long a sample is buffered at most; 0: write-through mode
	// MaxBytes bounds the buffered samples: from half of it on they are flushed early, beyond it requests are rejected.
	MaxBytes int64
	Merge    bool // one cell is made of those of a row when its hour has ended

	LeaseTTL time.Duration // of this process's journal; default 15 s
	Address  string        // where this process answers other promtsd for buffered samples; empty: nowhere

	NewDecoder func() Decoder // of the bodies that are replayed
}

const defaultLeaseTTL = 15 * time.Second

// Appender is the write path of a process. It is safe for concurrent use.
type Appender struct {
	config    Config
	index     index.Writer
	exemplars exemplars.Rows
	metadata  *families.Writer
	cache     *seriescache.Cache
	table     *memtable.Table
	recovery  *recovery.Recovery
	jobs      sync.Pool // *job
	metrics   metrics
	highWater *highWater
	active    *activity

	early    chan struct{}      // has an entry when samples should be flushed before their time
	stop     context.CancelFunc // ends the flush workers
	flushers sync.WaitGroup

	damageLogged atomic.Int64 // when a damaged UID was logged last, in seconds since 1970
}

// New returns an Appender. It must be started before it appends in buffered mode.
// The error is that of registering its metrics.
func New(c Config) (*Appender, error) {
	a := newAppender(c)
	a.highWater = newHighWater(a.config, a.table)
	var err error
	a.metrics, err = newMetrics(a.config.Registerer, a)
	return a, err
}

// newAppender is New without a high-water mark and metrics.
func newAppender(c Config) *Appender {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Apply == nil {
		c.Apply = c.Store.Apply
	}
	if c.Buffer.LeaseTTL == 0 {
		c.Buffer.LeaseTTL = defaultLeaseTTL
	}
	table := memtable.New(memtable.Config{
		Schema: c.Settings.Schema, StartBase: mapping.BaseTime(max(c.Now().UnixMilli(), 0)),
		Merge: c.Buffer.Merge, MaxBytes: c.Buffer.MaxBytes,
	})
	a := &Appender{
		config: c, table: table, cache: seriescache.New(c.CacheSize, table), early: make(chan struct{}, 1),
		index: index.Writer{Tables: c.Settings.Tables}, exemplars: exemplars.NewRows(c.Settings.Schema),
		metadata: families.NewWriter(c.Store, c.Settings.Tables), active: newActivity(c.Limits.Active, c.Logger),
	}
	a.jobs.New = func() any { return new(job) }
	a.recovery = recovery.New(a.recoveryConfig())
	return a
}

// NewFinder returns a Finder for requests that this Appender is to store.
func (a *Appender) NewFinder() request.Finder { return a.cache.NewFinder() }

// Start takes over the journals that dead processes left, and in buffered mode opens a journal and begins to flush. It
// returns when the Appender takes requests and everything acknowledged before can be read. ctx bounds the start only.
func (a *Appender) Start(ctx context.Context) error {
	if err := a.highWater.load(ctx); err != nil {
		return err
	}
	if err := a.recovery.Start(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.Background())
	a.stop = stop
	if a.buffered() {
		for worker := range a.table.Workers() {
			a.flushers.Go(func() { a.newFlushWorker().run(running, worker) })
		}
	}
	return nil
}

func (a *Appender) buffered() bool { return a.config.Buffer.FlushInterval > 0 }

// Ready says why requests cannot be taken at the moment, nil if they can.
func (a *Appender) Ready() error {
	if !a.buffered() {
		return nil
	}
	w, err := a.recovery.Journal()
	if err != nil {
		return err
	}
	return w.Ready()
}

// Writer is the name of the journal that is written now, 0 if there is none.
func (a *Appender) Writer() journal.ID {
	w, err := a.recovery.Journal()
	if err != nil {
		return 0
	}
	return w.ID()
}

// Replaying says which journal is being replayed, and how far that is; empty: none is.
func (a *Appender) Replaying() string { return a.recovery.Replaying() }

// Close flushes what is buffered, as far as ctx allows, and gives the journal up. Appends must have ended. What is not
// flushed stays in the journal, which the next start, or another promtsd at once, takes over. An error is the store's.
func (a *Appender) Close(ctx context.Context) error {
	if a.stop == nil {
		return nil
	}
	a.stopWorkers()
	return a.recovery.Close(ctx, a.flushAll(ctx))
}

// stopWorkers stops what flushes and takes journals over.
func (a *Appender) stopWorkers() {
	a.stop()
	a.flushers.Wait()
	a.recovery.StopWatching()
}

// Buffered calls f with the points of series that are acknowledged and may not be in the data table yet; see
// memtable.Table.Buffered. There are no warnings.
func (a *Appender) Buffered(
	_ context.Context, tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte),
) (warnings []error) {
	a.table.Buffered(tsuids, from, to, f)
	return nil
}

// OldestBuffered is the lowest base time that Buffered may find points of; see memtable.Table.OldestBase.
func (a *Appender) OldestBuffered() uint32 { return a.table.OldestBase() }

// Append stores the samples of req, its exemplars and its metadata: those of the result are durable and readable when
// it returns. What can never be stored is refused one by one in the result, and costs the others nothing. An error
// means that some or none of the request is stored, and that it may be sent again: a sample that is there already is
// replaced by itself.
//
// Of req nothing is changed but what LabelsOf changes, and nothing is kept.
func (a *Appender) Append(ctx context.Context, req *request.Write) (request.Result, error) {
	if a.config.Writable != nil {
		if err := a.config.Writable(); err != nil {
			return request.Result{}, err
		}
	}
	j := a.jobs.Get().(*job)
	defer func() {
		j.reset()
		a.jobs.Put(j)
	}()
	now := a.config.Now().UnixMilli()
	ad := newAdmission(a.config.Limits, a.highWater.arrive(now), now)
	var result request.Result
	err := a.highWater.reserve(ctx, ad.arrived)
	if err == nil {
		err = a.find(ctx, j, req, ad, &result)
	}
	if err == nil {
		a.putExemplars(j, req, ad, &result)
		a.putMetadata(ctx, j, req, ad)
	}
	switch {
	case err != nil:
	case !slices.ContainsFunc(j.series, func(s *memtable.Series) bool { return s != nil }):
		err = a.applyBatch(ctx, j)
	case a.buffered():
		err = a.appendBuffered(ctx, j, req, ad, &result)
	default:
		err = a.writeThrough(ctx, j, req, ad, &result)
	}
	if err != nil {
		return request.Result{}, err
	}
	a.metrics.samples.Add(float64(result.Written + result.Histograms))
	a.countOthers(j, &result)
	a.logDamage(&result)
	return result, nil
}

// logDamage logs now and then that series are refused because the store is damaged: their sender is told, but cannot
// help it.
func (a *Appender) logDamage(result *request.Result) {
	n := result.Refused[request.ReasonUIDDamaged]
	if n == 0 {
		return
	}
	now, last := a.config.Now().Unix(), a.damageLogged.Load()
	if now-last >= 60 && a.damageLogged.CompareAndSwap(last, now) {
		a.config.Logger.Error("samples are refused because the UID table is damaged: repair the cell", "samples", n, "err",
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
