package adapter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/mapping/request"
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
	var all []prometheus.Collector
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "promtsd", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
		all = append(all, c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
		all = append(all, c)
		return c
	}
	durations := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "promtsd", Name: name, Help: help,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}, labels)
		all = append(all, h)
		return h
	}
	gauge := func(name, help string, value func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help)), value))
	}

	m := &metrics{
		writeRequests: counters("write_requests_total", "Remote-write requests answered.", "version", "code"),
		writeDuration: durations("write_request_duration_seconds", "Time to answer a remote-write request.", "version"),
		writeRetries:  counter("write_retried_requests_total", "Remote-write requests that were marked as sent again."),
		writeBytes:    counter("write_received_bytes_total", "Bytes of remote-write bodies, compressed."),
		writeSamples: counter("write_samples_total",
			"Samples of remote-write requests that were stored, exact repeats included."),
		writeHistograms: counter("write_histograms_total", "Native histograms stored, exact repeats included."),
		writeRefused: counters("write_refused_samples_total",
			"Samples and native histograms that were refused for good.", "reason"),
		writeMalformed: counter("write_malformed_series_total",
			"Time series and exemplars that contradict the remote-write protocol."),

		readRequests: counters("read_requests_total", "Remote-read requests answered.", "response_type", "code"),
		readDuration: durations("read_request_duration_seconds", "Time to answer a remote-read request.", "response_type"),
		readWaiting: prometheus.NewGauge(prometheus.GaugeOpts(opts("read_waiting_requests",
			"Remote-read requests that wait for others to end."))),
		readQueries: counter("read_queries_total", "Queries of remote-read requests."),
		readWarnings: counter("read_warnings_total",
			"Reasons why samples may be missing in an answer to a remote read; the log says which."),
		readSeries:  counter("read_sent_series_total", "Series sent in answer to remote reads."),
		readSamples: counter("read_sent_samples_total", "Samples sent in answer to remote reads."),
		readFrames:  counter("read_sent_frames_total", "Frames of streamed answers to remote reads."),
		readBytes:   counter("read_sent_bytes_total", "Bytes of answers to remote reads."),
	}
	all = append(all, m.readWaiting)
	for _, reason := range request.SampleReasons { // a rate needs a 0 before the first
		m.writeRefused.WithLabelValues(string(reason))
	}
	gauge("write_in_flight_bytes", "Memory held by the requests under way, remote writes above all.",
		func() float64 { return float64(inFlight.bytes()) })
	gauge("read_in_flight_requests", "Remote-read requests that run.", func() float64 { return float64(reads.Taken()) })
	if reg == nil {
		return m, nil
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
