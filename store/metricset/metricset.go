// Package metricset makes the metrics of a component, and registers them together: all of them or none, with an error
// where prometheus.MustRegister would panic. Every component of promtsd makes its metrics with a Set in its
// constructor, which returns the error of Register.
package metricset

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Set has the metrics of one component. Names are given whole, so that they can be searched for. The zero value is
// empty.
type Set struct {
	collectors []prometheus.Collector
}

// Add adds a collector.
func (s *Set) Add(c prometheus.Collector) { s.collectors = append(s.collectors, c) }

func add[C prometheus.Collector](s *Set, c C) C {
	s.Add(c)
	return c
}

// Counter makes and adds a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// CounterVec makes and adds counters by labels.
func (s *Set) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

// Gauge makes and adds a gauge.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// GaugeVec makes and adds gauges by labels.
func (s *Set) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// GaugeFunc adds a gauge whose value is read at each scrape.
func (s *Set) GaugeFunc(name, help string, value func() float64) {
	s.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// HistogramVec makes and adds histograms by labels.
func (s *Set) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// Register registers all metrics with r; nil: they are kept and not registered. After an error none is.
func (s *Set) Register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for i, c := range s.collectors {
		if err := r.Register(c); err != nil {
			(&Set{s.collectors[:i]}).Unregister(r)
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// Unregister takes all metrics away from r, which they were registered with, or which is nil.
func (s *Set) Unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range s.collectors {
		r.Unregister(c)
	}
}
