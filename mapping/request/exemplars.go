package request

import "bytes"

// Exemplar is an exemplar of a series of a Write.
type Exemplar struct {
	Series int     // the position of its series in Write.Series
	T      int64   // milliseconds since 1970
	V      float64 // its bits are kept as they are
	Labels []byte  // label bytes (see AppendLabel), none at all if it has no labels
}

// Metadata is what a Write says of a metric family, by its own name or by that of one of its series.
type Metadata struct {
	Family []byte
	Type   string // as Prometheus calls it: counter, gauge, ...; empty, unknown
	Help   []byte
	Unit   []byte
}

// Exemplars of a request are refused for these reasons besides those of samples.
const (
	ReasonSeriesRefused  Reason = "series_refused"  // its series was
	ReasonExemplarLabels Reason = "exemplar_labels" // its labels are longer than OpenMetrics allows, or no labels
)

// ExemplarResult says what became of the exemplars of a Write.
type ExemplarResult struct {
	Written int            // exemplars that are stored now, exact repeats included
	Refused map[Reason]int // exemplars that are not and never will be, nil if there are none
	Example error          // the first refusal
}

// Refuse notes that an exemplar was refused.
func (r *ExemplarResult) Refuse(reason Reason, example error) {
	if r.Refused == nil {
		r.Refused, r.Example = make(map[Reason]int), example
	}
	r.Refused[reason]++
}

// familySuffixes are what the series of a metric family have behind the family's name, by the type of the family, as
// Prometheus sends them. Those of a counter, and of the types that OpenMetrics has besides, end in _total, _info and
// such or do not, as the exposition had them: there the series' own name stands for the family's, which is how they are
// asked for.
var familySuffixes = map[string][]string{
	"histogram":      {"_bucket", "_count", "_sum"},
	"gaugehistogram": {"_bucket", "_gcount", "_gsum"},
	"summary":        {"_count", "_sum"},
}

// MetricFamily is the name of the metric family that a series belongs to, by the series' name and the family's type.
func MetricFamily(name []byte, typ string) []byte {
	for _, suffix := range familySuffixes[typ] {
		if family, ok := bytes.CutSuffix(name, []byte(suffix)); ok && len(family) > 0 {
			return family
		}
	}
	return name
}
