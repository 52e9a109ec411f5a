package hbase

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "promtsd_hbase_" + name, Help: help}, labels)
	}
	seconds := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "promtsd_hbase_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 3, 11),
		}, labels)
	}
	o := &observer{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "promtsd_hbase_in_flight_requests", Help: "Requests sent to HBase's servers and not answered yet.",
		}),
		requestBytes:  counter("request_bytes_total", "Bytes of requests to HBase's servers, by method.", "method"),
		responseBytes: counter("response_bytes_total", "Bytes of their answers, by method.", "method"),
		calls:         seconds("request_duration_seconds", "Time of one request to one server, by method.", "method"),
		retries: counter("retries_total", "Requests that were repeated, by verb and by what the server said.", "verb",
			"reason"),
		moved: counter("regions_moved_total", "Regions found at another place than before, or new.", "table"),
	}
	if r == nil {
		return o, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		o.inFlight, o.requestBytes, o.responseBytes, o.calls, o.retries, o.moved,
	} {
		errs = append(errs, r.Register(c))
	}
	return o, errors.Join(errs...)
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
