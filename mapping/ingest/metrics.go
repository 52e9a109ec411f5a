package ingest

import "github.com/prometheus/client_golang/prometheus"

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

func newMetrics(r prometheus.Registerer, a *Appender) metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "promtsd_ingest_" + name, Help: help})
		if r != nil {
			r.MustRegister(c)
		}
		return c
	}
	refusedExemplars := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "promtsd_ingest_refused_exemplars_total", Help: "Exemplars that were refused for good.",
	}, []string{"reason"})
	if r != nil {
		r.MustRegister(refusedExemplars)
	}
	gauge := func(name, help string, value func() float64) {
		if r != nil {
			r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "promtsd_ingest_" + name, Help: help}, value))
		}
	}
	gauge("cached_series", "Series in the series cache.", func() float64 {
		entries, _ := a.cache.Size()
		return float64(entries)
	})
	gauge("cached_series_bytes", "Memory of the series cache.", func() float64 {
		_, bytes := a.cache.Size()
		return float64(bytes)
	})
	gauge("active_series", "Series with samples within the last hour, where --write.max-active-series bounds them.",
		func() float64 {
			if a.active == nil {
				return 0
			}
			return float64(a.active.count.Load())
		})
	gauge("active_series_limit", "What --write.max-active-series allows.",
		func() float64 { return float64(a.config.Limits.Active) })
	gauge("metadata_families", "Metric families of which metadata is stored, as far as that was looked at.",
		func() float64 {
			families, _ := a.metadata.Size()
			return float64(families)
		})
	gauge("metadata_bytes", "Their bytes.", func() float64 {
		_, bytes := a.metadata.Size()
		return float64(bytes)
	})
	gauge("replay_entries_left", "Entries of the journal that is being replayed which are still to be.",
		func() float64 { return float64(a.recovery.EntriesLeft()) })
	gauge("buffered_bytes", "Memory of samples that are in the journal and not yet in the data table.",
		func() float64 { return float64(a.table.BufferedBytes()) })
	return metrics{
		samples: counter("samples_total", "Samples stored, exact repeats included: of remote write, OTLP and replay."),
		newSeries: counter("series_resolved_total",
			"Series that were not in the series cache and whose UIDs were looked up or assigned."),
		exemplars:        counter("exemplars_total", "Exemplars stored, exact repeats included."),
		refusedExemplars: refusedExemplars,
		metadata:         counter("metadata_total", "Metric families of which metadata was stored because it was new."),
		invalidMetadata: counter("invalid_metadata_total",
			"Metadata of metric families that cannot be kept: no name, or too long."),
		limitedMetadata: counter("limited_metadata_total",
			"Metadata of metric families that was not stored because there is too much; its sender repeats it."),
		duplicates: counter("duplicate_samples_total", "Samples that repeated one in memory exactly, and were dropped."),
		cells:      counter("cells_total", "Cells flushed into the data table."),
		merged:     counter("rows_merged_total", "Rows of an ended hour whose cells were made one."),
		unreadable: counter("unreadable_rows_total",
			"Rows of an ended hour whose cells were not made one, since one cannot be read; the log names them."),
		flushes:      counter("flushes_total", "Batches flushed into the data table."),
		flushErrors:  counter("flush_errors_total", "Batches that could not be flushed, and are retried."),
		flushSeconds: counter("flush_seconds_total", "Time spent on flushing."),
		rejected:     counter("rejected_requests_total", "Requests answered 503 because the buffered samples fill --write.max-buffered-bytes."),
	}
}
