package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
	"google.golang.org/protobuf/proto"

	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
)

// Version answers what Prometheus answers at /version.
func (h *Handler) Version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(h.config.Build) // the client went away
}

// tellEvery is how often the log says that samples may be missing: who federates asks again and again.
const tellEvery = 10 * time.Second

// Federate answers what Prometheus answers at /federate: the latest sample, not older than the lookback delta, of each
// series that one of match[] selects, in an exposition format. Native histograms with exponential buckets are in those
// of protobuf only.
func (h *Handler) Federate(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.config.Timeout)
	defer cancel()
	h.calls.inTurn(h.federate)(w, r.WithContext(ctx))
}

func (h *Handler) federate(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "error parsing form values: "+err.Error(), http.StatusBadRequest)
		return
	}
	selectors, err := h.parse.ParseMetricSelectors(r.Form["match[]"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	latest, warnings, err := h.latest(r.Context(), selectors)
	if err != nil {
		code, _, mayPass := failureOf(err)
		if !mayPass && !errors.Is(err, query.ErrLimit) && !errors.Is(err, budget.ErrTooLarge) {
			code = http.StatusInternalServerError
		}
		http.Error(w, err.Error(), code)
		return
	}
	if len(warnings) > 0 {
		h.told.Do(func() {
			h.config.Logger.Warn("samples may be missing in the answer to a federation", "warnings", warnings.AsErrors())
		})
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.NewFormat(expfmt.TypeProtoDelim),
		expfmt.NewFormat(expfmt.TypeProtoText),
		expfmt.NewFormat(expfmt.TypeProtoCompact), expfmt.NewFormat(expfmt.TypeTextPlain))
	w.Header().Set("Content-Type", string(format))
	if err := encodeFamilies(expfmt.NewEncoder(w, format), format, latest); err != nil && r.Context().Err() == nil {
		h.config.Logger.Error("federation failed", "err", err)
		panic(http.ErrAbortHandler) // the status is gone; a broken connection says that the answer is not whole
	}
}

// latest returns the latest samples of the series that any of the selectors selects, ordered by metric name.
func (h *Handler) latest(
	ctx context.Context, selectors [][]*labels.Matcher,
) (found promql.Vector, warnings annotations.Annotations, err error) {
	maxt := h.config.Now().UnixMilli()
	mint := maxt - h.config.LookbackDelta.Milliseconds()
	q, err := h.config.Queryable.Querier(mint, maxt)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = q.Close() }()
	sets := make([]storage.SeriesSet, len(selectors))
	for i, matchers := range selectors {
		sets[i] = q.Select(ctx, true, &storage.SelectHints{Start: mint, End: maxt}, matchers...)
	}
	set := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	var it chunkenc.Iterator
	for set.Next() {
		it = set.At().Iterator(it)
		s := promql.Sample{Metric: set.At().Labels(), T: mint}
		any := false
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			any = true
			if typ == chunkenc.ValFloat {
				s.T, s.F = it.At()
				s.H = nil
			} else {
				s.T, s.H = it.AtFloatHistogram(nil)
			}
		}
		if err := it.Err(); err != nil {
			return nil, nil, err
		}
		// The exposition formats have no staleness markers.
		if err := budget.From(ctx).Take(ctx, int64(familyBytes+answerTimes*s.Metric.ByteSize())); err != nil {
			return nil, nil, err
		}
		if any && (s.H == nil && !value.IsStaleNaN(s.F) || s.H != nil && !value.IsStaleNaN(s.H.Sum)) {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b promql.Sample) int {
		return cmp.Compare(a.Metric.Get(model.MetricNameLabel), b.Metric.Get(model.MetricNameLabel))
	})
	return found, set.Warnings(), set.Err()
}

// encodeFamilies writes samples, which are ordered by metric name, as families. Where the kind of sample changes within
// a metric, another family of the same name begins: Prometheus reads that.
func encodeFamilies(to expfmt.Encoder, format expfmt.Format, samples promql.Vector) error {
	native := slices.Contains([]expfmt.FormatType{expfmt.TypeProtoDelim, expfmt.TypeProtoText, expfmt.TypeProtoCompact},
		format.FormatType())
	var family *dto.MetricFamily
	flush := func() error {
		if family == nil {
			return nil
		}
		return to.Encode(family)
	}
	for _, s := range samples {
		name := s.Metric.Get(model.MetricNameLabel)
		if name == "" || s.H != nil && !native && !s.H.UsesCustomBuckets() {
			continue
		}
		if typ := familyType(s.H); family == nil || family.GetName() != name || family.GetType() != typ {
			if err := flush(); err != nil {
				return err
			}
			family = &dto.MetricFamily{Name: proto.String(name), Type: typ.Enum()}
		}
		family.Metric = append(family.Metric, exposed(s))
	}
	return flush()
}

func familyType(h *histogram.FloatHistogram) dto.MetricType {
	switch {
	case h == nil:
		return dto.MetricType_UNTYPED
	case h.CounterResetHint == histogram.GaugeType:
		return dto.MetricType_GAUGE_HISTOGRAM
	}
	return dto.MetricType_HISTOGRAM
}

// exposed is a sample as the client model has it.
func exposed(s promql.Sample) *dto.Metric {
	m := &dto.Metric{TimestampMs: proto.Int64(s.T)}
	hasInstance := false
	s.Metric.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			hasInstance = hasInstance || l.Name == model.InstanceLabel
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
		}
	})
	if !hasInstance { // or who scrapes this would add its own
		m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(model.InstanceLabel), Value: proto.String("")})
	}
	switch h := s.H; {
	case h == nil:
		m.Untyped = &dto.Untyped{Value: proto.Float64(s.F)}
	case h.UsesCustomBuckets():
		m.Histogram = &dto.Histogram{SampleCountFloat: proto.Float64(h.Count), SampleSum: proto.Float64(h.Sum)}
		counts := make([]float64, len(h.CustomValues)+1)
		for it := h.PositiveBucketIterator(); it.Next(); {
			counts[it.At().Index] += it.At().Count
		}
		total := 0.0
		for i, bound := range h.CustomValues {
			total += counts[i]
			m.Histogram.Bucket = append(m.Histogram.Bucket, &dto.Bucket{
				UpperBound: proto.Float64(bound), CumulativeCountFloat: proto.Float64(total),
			})
		}
	default:
		m.Histogram = &dto.Histogram{
			SampleCountFloat: proto.Float64(h.Count), SampleSum: proto.Float64(h.Sum), Schema: proto.Int32(h.Schema),
			ZeroThreshold: proto.Float64(h.ZeroThreshold), ZeroCountFloat: proto.Float64(h.ZeroCount),
			PositiveSpan: spans(h.PositiveSpans), PositiveCount: h.PositiveBuckets,
			NegativeSpan: spans(h.NegativeSpans), NegativeCount: h.NegativeBuckets,
		}
	}
	return m
}

func spans(of []histogram.Span) (list []*dto.BucketSpan) {
	for _, s := range of {
		list = append(list, &dto.BucketSpan{Offset: proto.Int32(s.Offset), Length: proto.Uint32(s.Length)})
	}
	return list
}
