package adapter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/metricset"
)

// metrics of the handlers. The labels are bounded: version is 1.0, 2.0 or unknown; response_type is samples,
// streamed_xor_chunks or unknown; code is an HTTP status, or canceled (the client went away) or aborted (an answer
// broke off); reason is a request.Reason.
type metrics struct {
	writeRequests   *prometheus.CounterVec
	writeDuration   *prometheus.HistogramVec
	writeRetries    prometheus.Counter
	writeBytes      prometheus.Counter
	writeSamples    prometheus.Counter
	writeHistograms prometheus.Counter
	writeRefused    *prometheus.CounterVec
	writeMalformed  prometheus.Counter

	readRequests *prometheus.CounterVec
	readDuration *prometheus.HistogramVec
	readWaiting  prometheus.Gauge
	readQueries  prometheus.Counter
	readWarnings prometheus.Counter
	readSeries   prometheus.Counter
	readSamples  prometheus.Counter
	readFrames   prometheus.Counter
	readBytes    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, inFlight *bodyBudget, reads *fair.Places) (*metrics, error) {
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	var set metricset.Set
	m := &metrics{
		writeRequests: set.CounterVec("promtsd_write_requests_total", "Remote-write requests answered.",
			"version", "code"),
		writeDuration: set.HistogramVec("promtsd_write_request_duration_seconds",
			"Time to answer a remote-write request.", seconds, "version"),
		writeRetries: set.Counter("promtsd_write_retried_requests_total",
			"Remote-write requests that were marked as sent again."),
		writeBytes: set.Counter("promtsd_write_received_bytes_total", "Bytes of remote-write bodies, compressed."),
		writeSamples: set.Counter("promtsd_write_samples_total",
			"Samples of remote-write requests that were stored, exact repeats included."),
		writeHistograms: set.Counter("promtsd_write_histograms_total", "Native histograms stored, exact repeats included."),
		writeRefused: set.CounterVec("promtsd_write_refused_samples_total",
			"Samples and native histograms that were refused for good.", "reason"),
		writeMalformed: set.Counter("promtsd_write_malformed_series_total",
			"Time series and exemplars that contradict the remote-write protocol."),

		readRequests: set.CounterVec("promtsd_read_requests_total", "Remote-read requests answered.",
			"response_type", "code"),
		readDuration: set.HistogramVec("promtsd_read_request_duration_seconds",
			"Time to answer a remote-read request.", seconds, "response_type"),
		readWaiting: set.Gauge("promtsd_read_waiting_requests", "Remote-read requests that wait for others to end."),
		readQueries: set.Counter("promtsd_read_queries_total", "Queries of remote-read requests."),
		readWarnings: set.Counter("promtsd_read_warnings_total",
			"Reasons why samples may be missing in an answer to a remote read; the log says which."),
		readSeries:  set.Counter("promtsd_read_sent_series_total", "Series sent in answer to remote reads."),
		readSamples: set.Counter("promtsd_read_sent_samples_total", "Samples sent in answer to remote reads."),
		readFrames:  set.Counter("promtsd_read_sent_frames_total", "Frames of streamed answers to remote reads."),
		readBytes:   set.Counter("promtsd_read_sent_bytes_total", "Bytes of answers to remote reads."),
	}
	for _, reason := range request.SampleReasons { // a rate needs a 0 before the first
		m.writeRefused.WithLabelValues(string(reason))
	}
	set.GaugeFunc("promtsd_write_in_flight_bytes", "Memory held by the requests under way, remote writes above all.",
		func() float64 { return float64(inFlight.bytes()) })
	set.GaugeFunc("promtsd_read_in_flight_requests", "Remote-read requests that run.",
		func() float64 { return float64(reads.Taken()) })
	return m, set.Register(reg)
}
