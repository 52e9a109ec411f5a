package mapping

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
)

// Native histograms stand in the data table beside the points of their series, each in a cell of a form that OpenTSDB
// does not know: it passes over a qualifier of five bytes whose first one means nothing to it, and its fsck calls that
// an object of a future version. (Longer ones of an odd length it passes over, too, but counts as errors, so that a
// cell holds one.)
//
//	              +----+--------------+
//	qualifier:    | 48 | qualifier, 4 |        that of a point in milliseconds; flags 0
//	              +----+--------------+
//	              +-----------+
//	value:        | histogram |
//	              +-----------+
//
// A histogram is Prometheus's protobuf message Histogram (prompb.Histogram, fields 1 to 14 and 16) without its
// timestamp: integer or float, with exponential or custom buckets, and its counter-reset hint, all as it was sent. A
// stale marker is a histogram whose sum is the staleness NaN.

// histogramPrefix is the first byte of a histogram cell's qualifier.
const histogramPrefix = 0x48

// MaxHistogramBytes bounds a histogram in bytes, as it is stored.
const MaxHistogramBytes = 64 << 10

// Histogram is a native histogram: one of the two. The zero value is none. Histograms are shared and must not be
// changed.
type Histogram struct {
	Int   *histogram.Histogram
	Float *histogram.FloatHistogram
}

// IsZero says that it is none.
func (h Histogram) IsZero() bool { return h.Int == nil && h.Float == nil }

// Bytes is the memory that it takes, about.
func (h Histogram) Bytes() int {
	const empty = 256
	switch {
	case h.Int != nil:
		return empty + 8*(len(h.Int.PositiveBuckets)+len(h.Int.NegativeBuckets)+len(h.Int.PositiveSpans)+len(
			h.Int.NegativeSpans))
	case h.Float != nil:
		return empty + 8*(len(h.Float.PositiveBuckets)+len(h.Float.NegativeBuckets)+len(h.Float.PositiveSpans)+len(
			h.Float.NegativeSpans))
	}
	return 0
}

// after is h with a counter-reset hint, if it has none, and if the histogram before it in its series tells: a reader
// who does not get that one could not tell any more.
func (h Histogram) after(before Histogram) Histogram {
	hint := func(of, to *histogram.FloatHistogram) histogram.CounterResetHint {
		switch {
		case of.CounterResetHint != histogram.UnknownCounterReset:
			return of.CounterResetHint
		case to.CounterResetHint == histogram.GaugeType, value.IsStaleNaN(of.Sum), value.IsStaleNaN(to.Sum):
			return histogram.UnknownCounterReset
		case of.DetectReset(to):
			return histogram.CounterReset
		}
		return histogram.NotCounterReset
	}
	switch {
	case h.Int != nil && before.Int != nil:
		own := *h.Int
		own.CounterResetHint = hint(h.Int.ToFloat(nil), before.Int.ToFloat(nil))
		return Histogram{Int: &own}
	case h.Float != nil && before.Float != nil:
		own := *h.Float
		own.CounterResetHint = hint(h.Float, before.Float)
		return Histogram{Float: &own}
	}
	return h
}

// Message makes the protobuf message of a histogram at a time in milliseconds since 1970.
func (h Histogram) Message(t int64) prompb.Histogram {
	if h.Float != nil {
		return prompb.FromFloatHistogram(t, h.Float)
	}
	return prompb.FromIntHistogram(t, h.Int)
}

// ParseHistogram reads the protobuf message of a native histogram, as remote write 1.0 and 2.0 send it and as cells
// hold it, and its time, which is 0 in cells. One with a resolution beyond what Prometheus works with (schemas 9 to 52)
// is reduced to schema 8, as Prometheus does. The error, about bytes that are no such message or a histogram that
// contradicts itself, wraps ErrInvalid.
func ParseHistogram(message []byte) (h Histogram, t int64, err error) {
	var m prompb.Histogram
	if err := m.Unmarshal(message); err != nil {
		return h, 0, fmt.Errorf("%w: native histogram: %w", ErrInvalid, err)
	}
	reduce := m.Schema > histogram.ExponentialSchemaMax && histogram.IsKnownSchema(m.Schema)
	if m.IsFloatHistogram() {
		h.Float = m.ToFloatHistogram()
		if reduce {
			err = h.Float.ReduceResolution(histogram.ExponentialSchemaMax)
		}
		if err == nil {
			err = h.Float.Validate()
		}
	} else {
		h.Int = m.ToIntHistogram()
		if reduce {
			err = h.Int.ReduceResolution(histogram.ExponentialSchemaMax)
		}
		if err == nil {
			err = h.Int.Validate()
		}
	}
	if err != nil {
		return Histogram{}, m.Timestamp, fmt.Errorf("%w: native histogram: %w", ErrInvalid, err)
	}
	return h, m.Timestamp, nil
}

// AppendStored appends a histogram as cells hold it. The error, about one that is too large, wraps ErrInvalid.
func (h Histogram) AppendStored(dst []byte) ([]byte, error) {
	m := h.Message(0)
	size := m.Size()
	if size > MaxHistogramBytes {
		return dst, fmt.Errorf("%w: native histogram of %d bytes, at most %d can be stored: let its source use fewer buckets",
			ErrInvalid, size, MaxHistogramBytes)
	}
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	_, err := m.MarshalToSizedBuffer(dst[at:])
	return dst, err
}

// AppendHistogramPoint appends a histogram, as AppendStored makes it, to a point list.
func AppendHistogramPoint(dst []byte, offsetMs uint32, stored []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, msForm|offsetMs<<msShift&msOffsetMask|listHistogram)
	return append(binary.AppendUvarint(dst, uint64(len(stored))), stored...)
}

// IsHistogramCell says whether a qualifier is that of a native histogram.
func IsHistogramCell(qualifier []byte) bool {
	return len(qualifier) == 1+msWidth && qualifier[0] == histogramPrefix && isMs(qualifier[1])
}

// AppendHistogramQualifier appends the qualifier of a native histogram's cell.
func AppendHistogramQualifier(dst []byte, offsetMs uint32) []byte {
	return AppendQualifier(append(dst, histogramPrefix), offsetMs, 0)
}

// histogramOffset is the offset in a histogram cell's qualifier.
func histogramOffset(qualifier []byte) uint32 {
	return binary.BigEndian.Uint32(qualifier[1:]) & msOffsetMask >> msShift
}

// cutHistogram reads the length of a histogram in a point list: the histogram is value[from:to].
func cutHistogram(value []byte) (from, to int, err error) {
	size, n := binary.Uvarint(value)
	if n <= 0 || size > uint64(len(value)-n) {
		return 0, 0, fmt.Errorf("%w: a native histogram ends early", ErrCorrupt)
	}
	return n, n + int(size), nil
}
