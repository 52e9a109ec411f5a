package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/ingest/rowmerge"
	"github.com/promtsd/promtsd/store"
)

// failureEvery is how often a flush worker logs that it fails. It retries many times a second.
const failureEvery = 10 * time.Second

// flushWorker moves rows of the memtable into the data table. It is used by one goroutine.
type flushWorker struct {
	a      *Appender
	flush  *memtable.Flush
	merger *rowmerge.Merger
	batch  store.Batch
}

func (a *Appender) newFlushWorker() *flushWorker {
	return &flushWorker{a: a, flush: a.table.NewFlush(), merger: rowmerge.New(rowmerge.Config{
		Store: a.config.Store, Schema: a.config.Settings.Schema, Table: a.config.Settings.Tables.Data,
		Unreadable: a.logUnreadable,
	})}
}

func (a *Appender) logUnreadable(row []byte, err error) {
	a.metrics.unreadable.Inc()
	a.config.Logger.Error("left the cells of a row as they are: one cannot be read",
		"table", a.config.Settings.Tables.Data, "row", a.config.UIDs.FormatRowKey(row), "err", err)
}

// flushShard makes the samples of a flush shard durable in the data table.
func (w *flushWorker) flushShard(ctx context.Context, shard int) error {
	w.flush.Begin(shard)
	defer w.flush.End()
	for {
		rows, latest := w.flush.Take(w.a.config.Now().Unix())
		if len(rows) == 0 {
			return nil
		}
		if err := w.store(ctx, rows, latest); err != nil {
			w.flush.Abort()
			return err
		}
		w.flush.Commit()
	}
}

// store stores rows, whose cells have cell timestamps up to latest.
func (w *flushWorker) store(ctx context.Context, rows []memtable.Row, latest int64) error {
	begin := time.Now()
	w.batch.Reset()
	stats, err := w.merger.AppendRows(ctx, rows, &w.batch)
	if err == nil {
		if err = w.a.highWater.reserve(ctx, latest); err == nil {
			err = w.a.config.Store.Apply(ctx, &w.batch)
		}
	}
	m := &w.a.metrics
	m.flushSeconds.Add(time.Since(begin).Seconds())
	if err != nil {
		m.flushErrors.Inc()
		return fmt.Errorf("flush %d rows: %w", len(rows), err)
	}
	m.flushes.Inc()
	m.cells.Add(float64(stats.Cells))
	m.merged.Add(float64(stats.Merged))
	return nil
}

// run flushes the flush shards of a worker in turn: all of them within the flush interval, and faster under pressure.
func (w *flushWorker) run(ctx context.Context, worker int) {
	a, workers := w.a, w.a.table.Workers()
	turn := max(a.config.Buffer.FlushInterval/memtable.Shards, time.Millisecond)
	timer := time.NewTimer(turn * time.Duration(worker+1))
	defer timer.Stop()
	round := memtable.Shards / workers
	failures, logged := 0, time.Time{}
	for next, hurried := worker, 0; ; next = (next + workers) % (round * workers) {
		if !a.table.Pressed() {
			hurried = 0
		}
		// A round in a hurry that brought no relief is followed by an ordinary one.
		if hurried++; hurried == 1 || hurried > round {
			select {
			case <-ctx.Done():
			case <-timer.C:
				timer.Reset(turn * time.Duration(workers))
			case <-a.early:
				if hurried == 1 && a.table.Pressed() {
					a.flushEarly() // the other workers must hear of it, too
				}
			}
		}
		if hurried > 2*round {
			hurried = 0
		}
		if ctx.Err() != nil {
			return
		}
		switch err := w.flushShard(ctx, next); {
		case ctx.Err() != nil:
		case err == nil && failures > 0:
			a.config.Logger.Info("samples are flushed again", "failures", failures)
			failures, logged = 0, time.Time{}
		case err != nil:
			if failures++; time.Since(logged) > failureEvery {
				logged = time.Now()
				a.config.Logger.Warn("samples not flushed; they stay in the journal and are retried", "failures", failures, "err",
					err)
			}
		}
	}
}

// flushEarly wakes a flush worker before its time.
func (a *Appender) flushEarly() {
	select {
	case a.early <- struct{}{}:
	default:
	}
}

// flushAll flushes every flush shard. A worker stops at its first error; the errors of all are returned.
func (a *Appender) flushAll(ctx context.Context) error {
	errs := make([]error, a.table.Workers())
	var workers sync.WaitGroup
	for worker := range errs {
		workers.Go(func() {
			w := a.newFlushWorker()
			for shard := worker; shard < memtable.Shards && errs[worker] == nil; shard += len(errs) {
				errs[worker] = w.flushShard(ctx, shard)
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}
