package main

import (
	"context"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/retention"
)

// dropper drops samples that have been kept for long enough, see retention.Before.
type dropper struct {
	opened
	memory *index.Memory
	keep   time.Duration
	now    func() time.Time
}

// run drops them now and then, until ctx ends.
func (d dropper) run(ctx context.Context) {
	tick := time.NewTicker(dropEvery)
	defer tick.Stop()
	for {
		begin := time.Now()
		before, ranges, err := d.drop(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.logger.Error("samples beyond the retention not dropped; trying again", "err", err, "in", dropEvery)
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
func (d dropper) drop(ctx context.Context) (before int64, ranges int, err error) {
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
