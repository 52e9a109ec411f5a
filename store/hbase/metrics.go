package hbase

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store/metricset"
)

// observer turns what the client tells into metrics.
type observer struct {
	inFlight      prometheus.Gauge
	requestBytes  *prometheus.CounterVec
	responseBytes *prometheus.CounterVec
	calls         *prometheus.HistogramVec
	retries       *prometheus.CounterVec
	moved         *prometheus.CounterVec
}

func newObserver(r prometheus.Registerer) (*observer, error) {
	var set metricset.Set
	o := &observer{
		inFlight: set.Gauge("promtsd_hbase_in_flight_requests", "Requests sent to HBase's servers and not answered yet."),
		requestBytes: set.CounterVec("promtsd_hbase_request_bytes_total",
			"Bytes of requests to HBase's servers, by method.", "method"),
		responseBytes: set.CounterVec("promtsd_hbase_response_bytes_total", "Bytes of their answers, by method.", "method"),
		calls: set.HistogramVec("promtsd_hbase_request_duration_seconds", "Time of one request to one server, by method.",
			prometheus.ExponentialBuckets(0.0005, 3, 11), "method"),
		retries: set.CounterVec("promtsd_hbase_retries_total",
			"Requests that were repeated, by verb and by what the server said.", "verb", "reason"),
		moved: set.CounterVec("promtsd_hbase_regions_moved_total", "Regions found at another place than before, or new.",
			"table"),
	}
	return o, set.Register(r)
}

// Started implements client.Observer.
func (o *observer) Started(method string, size int) {
	o.inFlight.Inc()
	o.requestBytes.WithLabelValues(method).Add(float64(size))
}

// Finished implements client.Observer.
func (o *observer) Finished(method string, took time.Duration, size int, _ error) {
	o.inFlight.Dec()
	o.responseBytes.WithLabelValues(method).Add(float64(size))
	o.calls.WithLabelValues(method).Observe(took.Seconds())
}

// Retry implements client.Observer.
func (o *observer) Retry(verb, reason string) { o.retries.WithLabelValues(verb, reason).Inc() }

// Moved implements client.Observer.
func (o *observer) Moved(table string, n int) { o.moved.WithLabelValues(table).Add(float64(n)) }
