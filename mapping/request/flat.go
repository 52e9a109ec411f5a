package request

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/promtsd/promtsd/mapping"
)

// A request that did not come by remote write, or of which limits refused a part, is journaled in a flat encoding.
// After the number of its series come these, one after the other, and after the number of its exemplars those:
//
//	+----------------+-------------+-----------------+--------------------+
//	| uvarint length | label bytes | uvarint samples | uvarint histograms |
//	+----------------+-------------+-----------------+--------------------+
//	+--------------+----------+-----+----------------+---------+-----
//	| time, varint | value, 8 | ... | uvarint length | message | ...
//	+--------------+----------+-----+----------------+---------+-----
//	|<-- for each sample ---->|     |<- for each histogram --->|
//
//	+----------------+--------------+----------+----------------+-------------+
//	| uvarint series | time, varint | value, 8 | uvarint length | label bytes |
//	+----------------+--------------+----------+----------------+-------------+
//
// Metadata is not journaled: it is durable elsewhere before the request is acknowledged, and needs no replay.

// AppendFlat appends the series that keep says, by their position, with their samples, histograms and exemplars to dst,
// in the flat encoding; keep nil: all of them.
func (r *Write) AppendFlat(dst []byte, keep func(series int) bool) []byte {
	if keep == nil {
		keep = func(int) bool { return true }
	}
	var position []uint64 // in the flat encoding, of the series; exemplars need it
	if len(r.Exemplars) > 0 {
		position = make([]uint64, len(r.Series))
	}
	kept := uint64(0)
	for i := range r.Series {
		if position != nil {
			position[i] = kept
		}
		if keep(i) {
			kept++
		}
	}
	dst = binary.AppendUvarint(dst, kept)
	histograms := r.Histograms
	for i, s := range r.Series {
		own := 0
		for own < len(histograms) && histograms[own].Series == i {
			own++
		}
		if keep(i) {
			dst = r.appendFlatSeries(dst, i, s, histograms[:own])
		}
		histograms = histograms[own:]
	}
	kept = 0
	for _, e := range r.Exemplars {
		if keep(e.Series) {
			kept++
		}
	}
	dst = binary.AppendUvarint(dst, kept)
	for _, e := range r.Exemplars {
		if !keep(e.Series) {
			continue
		}
		dst = binary.AppendVarint(binary.AppendUvarint(dst, position[e.Series]), e.T)
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(e.V))
		dst = append(binary.AppendUvarint(dst, uint64(len(e.Labels))), e.Labels...)
	}
	return dst
}

// appendFlatSeries appends the series at a position, with its samples and its histograms.
func (r *Write) appendFlatSeries(dst []byte, position int, s Series, histograms []Histogram) []byte {
	labels := r.LabelsOf(position)
	dst = append(binary.AppendUvarint(dst, uint64(len(labels))), labels...)
	dst = binary.AppendUvarint(dst, uint64(s.To-s.From))
	dst = binary.AppendUvarint(dst, uint64(len(histograms)))
	for _, sample := range r.Samples[s.From:s.To] {
		dst = binary.AppendVarint(dst, sample.T)
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(sample.V))
	}
	for _, h := range histograms {
		dst = append(binary.AppendUvarint(dst, uint64(len(h.Message))), h.Message...)
	}
	return dst
}

// ParseFlat fills r from the flat encoding. The error wraps mapping.ErrCorrupt. Label bytes and messages point into b.
func (r *Write) ParseFlat(b []byte) error {
	r.Reset()
	p := flatParser{rest: b}
	for range p.uvarint() {
		labels, samples, histograms := p.text(), p.uvarint(), p.uvarint()
		from := len(r.Samples)
		for range samples {
			sample := Sample{T: p.varint(), V: p.float()}
			if p.cut {
				break
			}
			r.Samples = append(r.Samples, sample)
		}
		for range histograms {
			h := Histogram{len(r.Series), p.text()}
			if p.cut {
				break
			}
			r.Histograms = append(r.Histograms, h)
		}
		if p.cut {
			break
		}
		r.Series = append(r.Series, Series{Labels: labels, From: from, To: len(r.Samples)})
	}
	for range p.uvarint() {
		series := p.uvarint()
		e := Exemplar{Series: int(series), T: p.varint(), V: p.float(), Labels: p.text()}
		if p.cut || series >= uint64(len(r.Series)) {
			p.cut = true
			break
		}
		r.Exemplars = append(r.Exemplars, e)
	}
	if p.cut || len(p.rest) > 0 {
		return fmt.Errorf("read flat request: %w: it ends early, or contradicts itself", mapping.ErrCorrupt)
	}
	return nil
}

// flatParser reads the parts of a flat encoding. Once it is cut every part is empty.
type flatParser struct {
	rest []byte
	cut  bool // there was not enough
}

func (p *flatParser) take(n uint64) []byte {
	if p.cut = p.cut || n > uint64(len(p.rest)); p.cut {
		return nil
	}
	part := p.rest[:n:n]
	p.rest = p.rest[n:]
	return part
}

func (p *flatParser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if p.cut = p.cut || n <= 0; p.cut {
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *flatParser) varint() int64 {
	v := p.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (p *flatParser) float() float64 {
	if b := p.take(8); b != nil {
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (p *flatParser) text() []byte { return p.take(p.uvarint()) }
