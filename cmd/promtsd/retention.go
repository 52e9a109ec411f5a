package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/retention"
	"github.com/promtsd/promtsd/store"
)

// dropEvery is how often old samples are looked for. They are dropped by the hour.
const dropEvery = 10 * time.Minute

// dropOld drops what is older than keep, now and then, until ctx ends.
func dropOld(
	ctx context.Context, logger *slog.Logger, st store.Store, settings catalog.Settings, memory *index.Memory, keep time.Duration,
) {
	tick := time.NewTicker(dropEvery)
	defer tick.Stop()
	for {
		begin := time.Now()
		before := begin.Add(-keep)
		ranges, err := retention.Drop(ctx, st, settings, before.UnixMilli())
		if err == nil {
			err = retention.DropDays(ctx, st, settings, before.UnixMilli())
		}
		if err == nil {
			memory.Forget(index.DayOf(before.UnixMilli()))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			logger.Error("samples beyond the retention not dropped; trying again", "err", err, "in", dropEvery)
		case ranges > 0:
			logger.Info("dropped samples beyond the retention", "before", before.UTC().Format(time.RFC3339), "ranges", ranges,
				"elapsed", time.Since(begin).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
