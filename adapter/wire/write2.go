package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// DecodeV2 takes a remote-write 2.0 body apart, an inflated io.prometheus.write.v2.Request:
//
//	Request     4 symbols (the first is empty)  5 timeseries
//	TimeSeries  1 labels_refs (name, value, name, ... as places in symbols)
//	            2 samples   3 histograms   4 exemplars   5 metadata
//	Sample      1 value     2 timestamp    3 start_timestamp (not kept)
//	Metadata    1 type      3 help_ref     4 unit_ref
//
// It does as DecodeV1 does, except that series have references instead of label bytes. A series is malformed, counted
// and left out, while the others are kept, if it has an odd number of references, or one beyond the symbols, or both
// samples and histograms, or none of these and no exemplar (Prometheus sends exemplars as series of their own, although
// the documents have it otherwise). An exemplar with such references is malformed on its own. If the first symbol is
// not empty, every series and exemplar is malformed. Metadata goes with its series.
func (d *Decoder) DecodeV2(body []byte, req *request.Write) (Counts, error) {
	d.begin(req)
	var c Counts
	if err := d.readSymbols(body, req); err != nil {
		return c, err
	}
	index := 0
	for i := 0; i < len(body); {
		num, typ, next := tag(body, i) // readSymbols has checked this level
		if num == 5 {
			from, to := field(body, next)
			if err := d.seriesV2(body[:to], from, index, req, &c); err != nil {
				return c, err
			}
			index++
			i = to
			continue
		}
		i = skip(body, next, typ)
	}
	return c, nil
}

// readSymbols checks the outermost level of a body and collects its symbols, which may stand behind the series that
// refer to them.
func (d *Decoder) readSymbols(body []byte, req *request.Write) error {
	d.symbols, d.longest, d.labelBytes, d.counted = d.symbols[:0], 0, 0, false
	ours, theirs := false, false // there are fields of 2.0, of 1.0
	for i := 0; i < len(body); {
		num, typ, next := tag(body, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		if num != 4 && num != 5 {
			if next = skip(body, next, typ); next < 0 {
				return malformed(i, "unknown field")
			}
			theirs = theirs || num == 1 || num == 3
			i = next
			continue
		}
		ours = true
		from, to := field(body, next)
		if typ != typeBytes || from < 0 {
			return malformed(i, "symbol or time series")
		}
		if num == 4 {
			symbol := body[next:to]
			if from > next+maxLengthBytes {
				start := len(req.Scratch)
				req.Scratch = binary.AppendUvarint(req.Scratch, uint64(to-from))
				req.Scratch = append(req.Scratch, body[from:to]...)
				symbol = req.Scratch[start:len(req.Scratch):len(req.Scratch)]
			}
			before := cap(d.symbols)
			d.symbols, d.longest = append(d.symbols, symbol), max(d.longest, len(symbol))
			if err := d.grew(cap(d.symbols)-before, symbolBytes); err != nil {
				return err
			}
			if d.MaxBytes > 0 && len(d.symbols) > d.MaxBytes/symbolBytes {
				return fmt.Errorf("%w: %d symbols need more than the %d bytes allowed", ErrTooLarge, len(d.symbols), d.MaxBytes)
			}
		}
		i = to
	}
	if theirs && !ours {
		return fmt.Errorf("%w: prometheus.WriteRequest (1.0), not io.prometheus.write.v2.Request (2.0)", ErrOtherVersion)
	}
	req.Symbols = d.symbols
	return nil
}

func (d *Decoder) seriesV2(b []byte, i, index int, req *request.Write, c *Counts) error {
	firstRef, firstSample, firstHistogram := len(req.Refs), len(req.Samples), len(req.Histograms)
	firstExemplar, exemplars := len(req.Exemplars), 0
	var meta metadataV2
	for i < len(b) {
		num, typ, next := tag(b, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		if num > 5 {
			if next = skip(b, next, typ); next < 0 {
				return malformed(i, "unknown field")
			}
			i = next
			continue
		}
		if num == 1 {
			before := cap(req.Refs)
			if req.Refs, next = appendRefs(req.Refs, b, next, typ); next < 0 {
				return malformed(i, "label references")
			}
			if err := d.grew(cap(req.Refs)-before, refBytes); err != nil {
				return err
			}
			i = next
			continue
		}
		from, to := field(b, next)
		if typ != typeBytes || from < 0 {
			return malformed(i, "field of a time series")
		}
		var err error
		switch num {
		case 2:
			err = d.sample(b[:to], from, sampleShapeV2, req)
		case 3:
			err = d.histogram(b[:to], from, histogramShapeV2, req)
		case 4:
			exemplars++
			err = d.exemplarV2(b[:to], from, index, req, c)
		case 5:
			err = meta.merge(b[:to], from)
		}
		if err != nil {
			return err
		}
		i = to
	}

	samples, histograms := len(req.Samples)-firstSample, len(req.Histograms)-firstHistogram
	refs := req.Refs[firstRef:]
	problem := d.checkRefs(refs)
	switch {
	case problem != "":
	case meta.help > 0 && int64(meta.help) >= int64(len(d.symbols)),
		meta.unit > 0 && int64(meta.unit) >= int64(len(d.symbols)):
		problem = "its metadata refers to a symbol that does not exist"
	case samples > 0 && histograms > 0:
		problem = "it has both samples and histograms"
	case samples == 0 && histograms == 0 && exemplars == 0:
		problem = "it must have at least one sample, histogram or exemplar"
	}
	if problem != "" {
		req.Refs, req.Samples, req.Histograms = req.Refs[:firstRef], req.Samples[:firstSample],
			req.Histograms[:firstHistogram]
		req.Exemplars = req.Exemplars[:firstExemplar]
		c.refuse(samples+histograms, func() error {
			return fmt.Errorf("%w: time series %d (%s): %s", mapping.ErrInvalid, index, d.formatSeries(refs), problem)
		})
		return nil
	}
	if meta != (metadataV2{}) {
		if err := d.addMetadataV2(meta, refs, req); err != nil {
			return err
		}
	}
	if samples+histograms == 0 && len(req.Exemplars) == firstExemplar {
		req.Refs = req.Refs[:firstRef]
		return nil
	}
	s := request.Series{RefsFrom: firstRef, RefsTo: len(req.Refs), From: firstSample, To: len(req.Samples)}
	if d.MaxBytes > 0 && !d.fits(refs, req) {
		return fmt.Errorf("%w: labels of the request need more than the %d bytes allowed", ErrTooLarge, d.MaxBytes)
	}
	return d.addSeries(s, req)
}

// fits says whether the label bytes of all series so far, and of one with some references, are within the bound. They
// are counted only if they might not be, were all symbols as long as the longest.
func (d *Decoder) fits(refs []uint32, req *request.Write) bool {
	if most := len(req.Refs) * (d.longest + request.PairBytes); !d.counted && most <= d.MaxBytes {
		return true
	}
	if !d.counted {
		d.counted = true
		for _, s := range req.Series {
			d.labelBytes += req.LabelBytes(req.Refs[s.RefsFrom:s.RefsTo])
		}
	}
	d.labelBytes += req.LabelBytes(refs)
	return d.labelBytes <= d.MaxBytes
}

// checkRefs says what is wrong with the references of a series or exemplar, nothing if they are good.
func (d *Decoder) checkRefs(refs []uint32) (problem string) {
	if len(d.symbols) > 0 && d.symbols[0][0] != 0 {
		return "the first symbol of the request is not empty"
	}
	if len(refs)%2 != 0 {
		return fmt.Sprintf("it has %d label references, an odd number", len(refs))
	}
	for i, ref := range refs {
		if uint64(ref) >= uint64(len(d.symbols)) {
			return fmt.Sprintf("its label references %d and %d lie beyond the %d symbols", refs[i&^1], refs[i|1], len(d.symbols))
		}
	}
	return ""
}

// formatSeries is request.FormatSeries of as many labels as the references of a malformed series tell.
func (d *Decoder) formatSeries(refs []uint32) string {
	var labels []byte
	for ; len(refs) >= 2 && len(labels) < request.MaxFormatted; refs = refs[2:] {
		if uint64(max(refs[0], refs[1])) >= uint64(len(d.symbols)) {
			break
		}
		labels = request.AppendSymbols(labels, d.symbols[refs[0]], d.symbols[refs[1]])
	}
	return request.FormatSeries(labels)
}

// appendRefs reads references, one or packed. References have 32 bits, what is beyond is dropped.
func appendRefs(refs []uint32, b []byte, i int, typ byte) ([]uint32, int) {
	switch typ {
	case typeVarint:
		v, next := uvarint(b, i)
		return append(refs, uint32(v)), next
	case typeBytes:
		i, to := field(b, i)
		if to-i > cap(refs)-len(refs) && i >= 0 {
			n := 0 // that end in the field
			for _, c := range b[i:to] {
				if c < 0x80 {
					n++
				}
			}
			refs = slices.Grow(refs, n) // at once: the lists on the way would be memory, too
		}
		for i >= 0 && i < to {
			var v uint64
			switch {
			case b[i] < 0x80:
				v, i = uint64(b[i]), i+1
			case i+1 < len(b) && b[i+1] < 0x80:
				v, i = uint64(b[i]&0x7f)|uint64(b[i+1])<<7, i+2
			default:
				v, i = uvarint(b, i)
			}
			refs = append(refs, uint32(v))
		}
		return refs, i
	}
	return refs, bad
}

type metadataV2 struct{ typ, help, unit uint32 }

// merge reads a metadata message over what was there, as protobuf wants it for a message field that is repeated.
func (m *metadataV2) merge(b []byte, i int) error {
	for i < len(b) {
		num, typ, next := tag(b, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		to := &m.typ
		switch num {
		case 1:
		case 3:
			to = &m.help
		case 4:
			to = &m.unit
		default:
			if next = skip(b, next, typ); next < 0 {
				return malformed(i, "unknown field")
			}
			i = next
			continue
		}
		v, next := uvarint(b, next)
		if typ != typeVarint || next < 0 {
			return malformed(i, "field of metadata")
		}
		*to = uint32(v)
		i = next
	}
	return nil
}
