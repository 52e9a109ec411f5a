package mapping

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A request that did not come as a body of remote write is journaled in a flat form, series after series:
//
//	+----------------+-------------+-----------------+--------------------+
//	| uvarint length | label bytes | uvarint samples | uvarint histograms |
//	+----------------+-------------+-----------------+--------------------+
//	+--------------+----------+-----+----------------+---------+-----
//	| time, varint | value, 8 | ... | uvarint length | message | ...
//	+--------------+----------+-----+----------------+---------+-----
//	|<-- for each sample ---->|     |<- for each histogram --->|

// AppendFlat appends the series and samples of r to dst in the flat form.
func (r *WriteRequest) AppendFlat(dst []byte) []byte {
	histograms := r.Histograms
	for i, s := range r.Series {
		own := 0
		for own < len(histograms) && histograms[own].Series == i {
			own++
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(s.Labels))), s.Labels...)
		dst = binary.AppendUvarint(dst, uint64(s.To-s.From))
		dst = binary.AppendUvarint(dst, uint64(own))
		for _, sample := range r.Samples[s.From:s.To] {
			dst = binary.AppendVarint(dst, sample.T)
			dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(sample.V))
		}
		for _, h := range histograms[:own] {
			dst = append(binary.AppendUvarint(dst, uint64(len(h.Message))), h.Message...)
		}
		histograms = histograms[own:]
	}
	return dst
}

// ParseFlat fills r from the flat form. The error wraps ErrCorrupt. Label bytes and messages point into b.
func (r *WriteRequest) ParseFlat(b []byte) error {
	r.Reset()
	cut := func() error { return fmt.Errorf("read flat request: %w: it ends early", ErrCorrupt) }
	for len(b) > 0 {
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return cut()
		}
		labels := b[n : n+int(length)]
		b = b[n+int(length):]
		samples, n := binary.Uvarint(b)
		if n <= 0 || samples > uint64(len(b)-n)/9 {
			return cut()
		}
		b = b[n:]
		histograms, n := binary.Uvarint(b)
		if n <= 0 || histograms > uint64(len(b)-n) {
			return cut()
		}
		b = b[n:]
		from := len(r.Samples)
		for range samples {
			t, n := binary.Varint(b)
			if n <= 0 || len(b) < n+8 {
				return cut()
			}
			r.Samples = append(r.Samples, Sample{T: t, V: math.Float64frombits(binary.BigEndian.Uint64(b[n:]))})
			b = b[n+8:]
		}
		for range histograms {
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return cut()
			}
			r.Histograms = append(r.Histograms, RequestHistogram{len(r.Series), b[n : n+int(length)]})
			b = b[n+int(length):]
		}
		r.Series = append(r.Series, RequestSeries{Labels: labels, From: from, To: len(r.Samples)})
	}
	return nil
}
