package api

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// What answers take of memory, about: the engine's values, and the JSON, which is written as a whole into a buffer that
// grows, and copied at its end.
const (
	stepBytes   = 112 // of a subquery without series: the points, a ring of them that doubles, and those of a window
	pointBytes  = 2*16 + 3*36
	familyBytes = 512 // a series, or a metric family, besides its texts

	// answerTimes is how many times the memory of texts an answer takes that has them.
	answerTimes = 4
)

// answerBytes is the memory of a query's value and of the answer with it.
func answerBytes(value parser.Value) (bytes int64) {
	switch v := value.(type) {
	case promql.Matrix:
		for _, s := range v {
			bytes += familyBytes + answerTimes*int64(s.Metric.ByteSize()) + int64(len(s.Floats))*pointBytes
			for _, p := range s.Histograms {
				bytes += histogramBytes(p.H)
			}
		}
	case promql.Vector:
		for _, s := range v {
			bytes += familyBytes + answerTimes*int64(s.Metric.ByteSize()) + histogramBytes(s.H)
		}
	case promql.String:
		bytes = answerTimes * int64(len(v.V))
	}
	return bytes
}

// histogramBytes is that of a native histogram, each bucket of which becomes four numbers.
func histogramBytes(h *histogram.FloatHistogram) int64 {
	if h == nil {
		return 0
	}
	return familyBytes + int64(len(h.PositiveBuckets)+len(h.NegativeBuckets))*3*80
}
