package index

import (
	"bytes"
	"context"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// BuildProgress is told the data rows read and the series-days found so far; it may be nil.
type BuildProgress func(rows, seriesDays int)

// Build writes the index rows of every series in the data table, by its row keys, and then records that the index is
// complete. It may be repeated, and started again after it was cut short. Rows whose key belongs to no series (global
// annotations, foreign keys) are passed over. What others write into the data table meanwhile may be missed.
func Build(ctx context.Context, st store.Store, s catalog.Settings, now int64, progress BuildProgress) error {
	var (
		w          = Writer{Tables: s.Tables}
		batch      store.Batch
		scratch    []byte
		tsuid      []byte
		rows       int
		seriesDays int
		seen       = map[string]struct{}{} // TSUIDs of the metric and day at hand
		head       []byte                  // salt and metric UID of the rows at hand
		day        mapping.Day
	)
	for row, err := range st.Scan(ctx, store.Scan{Table: s.Tables.Data}) {
		if err != nil {
			return fmt.Errorf("build series index: %w", err)
		}
		if rows++; progress != nil && rows%10_000 == 0 {
			progress(rows, seriesDays)
		}
		var base uint32
		if tsuid, base, err = s.Schema.AppendRowTSUID(tsuid[:0], row.Key); err != nil || len(tsuid) == s.Schema.MetricWidth {
			continue // a foreign key, or one without tags: a global annotation
		}
		// Rows are ordered by salt, metric and time: what was seen of a metric's day is done with when it ends.
		rowHead, rowDay := row.Key[:s.Schema.TagsOffset()-4], mapping.DayOf(int64(base)*1000)
		if rowDay != day || !bytes.Equal(rowHead, head) {
			clear(seen)
			head, day = append(head[:0], rowHead...), rowDay
		}
		if _, ok := seen[string(tsuid)]; ok {
			continue
		}
		seen[string(tsuid)] = struct{}{}
		seriesDays++
		w.PutSeries(&batch, tsuid, now)
		scratch = w.PutDay(&batch, tsuid, day, now, scratch)
		if batch.Len() >= 4096 {
			if err := st.Apply(ctx, &batch); err != nil {
				return fmt.Errorf("build series index: %w", err)
			}
			batch.Reset()
		}
	}
	if err := st.Apply(ctx, &batch); err != nil {
		return fmt.Errorf("build series index: %w", err)
	}
	if progress != nil {
		progress(rows, seriesDays)
	}
	return catalog.SetIndexComplete(ctx, st, s.Tables.System, true)
}
