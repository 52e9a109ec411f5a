package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/retention"
	"github.com/promtsd/promtsd/store/metricset"
)

// dropper drops samples that have been kept for long enough, see retention.Before.
type dropper struct {
	opened
	memory *index.Memory
	keep   time.Duration
	now    func() time.Time

	runs, failures, ranges prometheus.Counter
}

// newDropper returns a dropper. The error is that of registering its metrics.
func newDropper(o opened, memory *index.Memory, keep time.Duration, now func() time.Time) (*dropper, error) {
	var set metricset.Set
	d := &dropper{
		opened: o, memory: memory, keep: keep, now: now,
		runs:     set.Counter("promtsd_retention_runs_total", "Looks for samples beyond the retention."),
		failures: set.Counter("promtsd_retention_failed_runs_total", "Those that failed, and are tried again."),
		ranges: set.Counter("promtsd_retention_dropped_ranges_total",
			"Ranges of rows that were deleted, each of a metric and salt bucket."),
	}
	return d, set.Register(o.registry)
}

// run drops them now and then, until ctx ends.
func (d *dropper) run(ctx context.Context) {
	tick := time.NewTicker(dropEvery)
	defer tick.Stop()
	for {
		begin := time.Now()
		before, ranges, err := d.drop(ctx)
		d.runs.Inc()
		d.ranges.Add(float64(ranges))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.failures.Inc()
			d.logger.Warn("samples beyond the retention not dropped; trying again", "err", err, "in", dropEvery)
		case ranges > 0:
			d.logger.Info("dropped samples beyond the retention", "before", time.UnixMilli(before).UTC().Format(time.RFC3339),
				"ranges", ranges, "elapsed", time.Since(begin).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// drop drops what is too old now.
func (d *dropper) drop(ctx context.Context) (before int64, ranges int, err error) {
	if before, err = retention.Before(ctx, d.store, d.settings, d.now().UnixMilli(), d.keep); err != nil || before == 0 {
		return 0, 0, err
	}
	if ranges, err = retention.Drop(ctx, d.store, d.settings, before); err != nil {
		return before, ranges, err
	}
	if err = retention.DropDays(ctx, d.store, d.settings, before); err == nil {
		d.memory.Forget(mapping.DayOf(before))
	}
	return before, ranges, err
}
