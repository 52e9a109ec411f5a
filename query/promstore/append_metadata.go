package promstore

import (
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/mapping/request"
)

// appendAttached adds what came with a sample of the request's last series: exemplars, and what is known of its metric
// family where that is not what the sample before said.
func (a *appender) appendAttached(ls labels.Labels, opts storage.AppendV2Options) {
	r := &a.req
	for _, e := range opts.Exemplars {
		var raw []byte
		e.Labels.Range(func(l labels.Label) { raw = request.AppendLabel(raw, l.Name, l.Value) })
		r.Exemplars = append(r.Exemplars, request.Exemplar{Series: len(r.Series) - 1, T: e.Ts, V: e.Value,
			Labels: raw})
	}
	m := opts.Metadata
	if m.IsEmpty() {
		return
	}
	typ := string(m.Type)
	if typ == "" {
		typ = string(model.MetricTypeUnknown)
	}
	family := strings.Clone(opts.MetricFamilyName) // which lives for this call only
	if family == "" {
		family = string(request.MetricFamily([]byte(ls.Get(model.MetricNameLabel)), typ))
	}
	if family == a.family && m == a.meta {
		return
	}
	a.family, a.meta = family, m
	r.Metadata = append(r.Metadata, request.Metadata{
		Family: []byte(family), Type: typ, Help: []byte(m.Help), Unit: []byte(m.Unit),
	})
}

// lastMetadata is the metadata that went into the request last.
type lastMetadata struct {
	family string
	meta   metadata.Metadata
}
