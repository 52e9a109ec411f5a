package ingest

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store/metricset"
)

type metrics struct {
	samples   prometheus.Counter
	newSeries prometheus.Counter

	exemplars        prometheus.Counter
	refusedExemplars *prometheus.CounterVec
	metadata         prometheus.Counter
	invalidMetadata  prometheus.Counter
	limitedMetadata  prometheus.Counter

	duplicates   prometheus.Counter
	cells        prometheus.Counter
	merged       prometheus.Counter
	unreadable   prometheus.Counter
	flushes      prometheus.Counter
	flushErrors  prometheus.Counter
	flushSeconds prometheus.Counter
	rejected     prometheus.Counter
}

// newMetrics makes the metrics of an Appender, and registers them if r is not nil.
func newMetrics(r prometheus.Registerer, a *Appender) (metrics, error) {
	var set metricset.Set
	set.GaugeFunc("promtsd_ingest_cached_series", "Series in the series cache.", func() float64 {
		entries, _ := a.cache.Size()
		return float64(entries)
	})
	set.GaugeFunc("promtsd_ingest_cached_series_bytes", "Memory of the series cache.", func() float64 {
		_, bytes := a.cache.Size()
		return float64(bytes)
	})
	set.GaugeFunc("promtsd_ingest_active_series",
		"Series with samples within the last hour, where --write.max-active-series bounds them.",
		func() float64 {
			if a.active == nil {
				return 0
			}
			return float64(a.active.count.Load())
		})
	set.GaugeFunc("promtsd_ingest_active_series_limit", "What --write.max-active-series allows.",
		func() float64 { return float64(a.config.Limits.Active) })
	set.GaugeFunc("promtsd_ingest_metadata_families",
		"Metric families of which metadata is stored, as far as that was looked at.",
		func() float64 {
			families, _ := a.metadata.Size()
			return float64(families)
		})
	set.GaugeFunc("promtsd_ingest_metadata_bytes", "Their bytes.", func() float64 {
		_, bytes := a.metadata.Size()
		return float64(bytes)
	})
	set.GaugeFunc("promtsd_ingest_replay_entries_left",
		"Entries of the journal that is being replayed which are still to be.",
		func() float64 { return float64(a.recovery.EntriesLeft()) })
	set.GaugeFunc("promtsd_ingest_buffered_bytes",
		"Memory of samples that are in the journal and not yet in the data table.",
		func() float64 { return float64(a.table.BufferedBytes()) })
	// backlog reads one number of the journal that is written at the time.
	backlog := func(name, help string, number func(entries, bytes int, oldest int64) float64) {
		set.GaugeFunc(name, help, func() float64 {
			w, err := a.recovery.Journal()
			if err != nil || w == nil {
				return 0
			}
			return number(w.Backlog())
		})
	}
	backlog("promtsd_journal_entries", "Entries of this process's journal that are not deleted yet.",
		func(entries, _ int, _ int64) float64 { return float64(entries) })
	backlog("promtsd_journal_bytes", "Bytes of these entries.",
		func(_, bytes int, _ int64) float64 { return float64(bytes) })
	backlog("promtsd_journal_oldest_entry_age_seconds", "Time since the oldest of these entries arrived.",
		func(_, _ int, oldest int64) float64 {
			if oldest == 0 {
				return 0
			}
			return float64(a.config.Now().UnixMilli()-oldest) / 1000
		})
	m := metrics{
		samples: set.Counter("promtsd_ingest_samples_total",
			"Samples stored, exact repeats included: of remote write, OTLP and replay."),
		newSeries: set.Counter("promtsd_ingest_series_resolved_total",
			"Series that were not in the series cache and whose UIDs were looked up or assigned."),
		exemplars: set.Counter("promtsd_ingest_exemplars_total",
			"Exemplars stored, exact repeats included."),
		refusedExemplars: set.CounterVec("promtsd_ingest_refused_exemplars_total",
			"Exemplars that were refused for good.", "reason"),
		metadata: set.Counter("promtsd_ingest_metadata_total",
			"Metric families of which metadata was stored because it was new."),
		invalidMetadata: set.Counter("promtsd_ingest_invalid_metadata_total",
			"Metadata of metric families that cannot be kept: no name, or too long."),
		limitedMetadata: set.Counter("promtsd_ingest_limited_metadata_total",
			"Metadata of metric families that was not stored because there is too much; its sender repeats it."),
		duplicates: set.Counter("promtsd_ingest_duplicate_samples_total",
			"Samples that repeated one in memory exactly, and were dropped."),
		cells: set.Counter("promtsd_ingest_cells_total",
			"Cells flushed into the data table."),
		merged: set.Counter("promtsd_ingest_rows_merged_total",
			"Rows of an ended hour whose cells were made one."),
		unreadable: set.Counter("promtsd_ingest_unreadable_rows_total",
			"Rows of an ended hour whose cells were not made one, since one cannot be read; the log names them."),
		flushes: set.Counter("promtsd_ingest_flushes_total",
			"Batches flushed into the data table."),
		flushErrors: set.Counter("promtsd_ingest_flush_errors_total",
			"Batches that could not be flushed, and are retried."),
		flushSeconds: set.Counter("promtsd_ingest_flush_seconds_total",
			"Time spent on flushing."),
		rejected: set.Counter("promtsd_ingest_rejected_requests_total",
			"Requests answered 503 because the buffered samples fill --write.max-buffered-bytes."),
	}
	return m, set.Register(r)
}
