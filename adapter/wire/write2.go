package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
)

// DecodeV2 takes a remote-write 2.0 body apart, an inflated io.prometheus.write.v2.Request:
//
//	Request     4 symbols (the first is empty)  5 timeseries
//	TimeSeries  1 labels_refs (name, value, name, ... as places in symbols)
//	            2 samples   3 histograms   4 exemplars   5 metadata
//	Sample      1 value     2 timestamp    3 start_timestamp (not kept)
//	Metadata    1 type      3 help_ref     4 unit_ref
//
// It does as DecodeV1 does, except that label bytes are built in req.Scratch. A series is malformed, counted and left
// out, while the others are kept, if it has an odd number of references, or one beyond the symbols, or both samples and
// histograms, or none of these and no exemplar (Prometheus sends exemplars as series of their own, although the documents
// have it otherwise). An exemplar with such references is malformed on its own. If the first symbol is not empty,
// every series and exemplar is malformed. Metadata goes with its series.
func (d *Decoder) DecodeV2(body []byte, req *mapping.WriteRequest) (Counts, error) {
	req.Reset()
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
func (d *Decoder) readSymbols(body []byte, req *mapping.WriteRequest) error {
	d.symbols = d.symbols[:0]
	for i := 0; i < len(body); {
		num, typ, next := tag(body, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		if num != 4 && num != 5 {
			if next = skip(body, next, typ); next < 0 {
				return malformed(i, "unknown field")
			}
			i = next
			continue
		}
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
			d.symbols = append(d.symbols, symbol)
			if d.MaxBytes > 0 && len(d.symbols) > d.MaxBytes/symbolBytes {
				return fmt.Errorf("%w: %d symbols need more than the %d bytes allowed", ErrTooLarge, len(d.symbols), d.MaxBytes)
			}
		}
		i = to
	}
	return nil
}

func (d *Decoder) seriesV2(b []byte, i, index int, req *mapping.WriteRequest, c *Counts) error {
	d.refs = d.refs[:0]
	firstSample, firstHistogram, firstExemplar, exemplars := len(req.Samples), len(req.Histograms), len(req.Exemplars), 0
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
			if d.refs, next = appendRefs(d.refs, b, next, typ); next < 0 {
				return malformed(i, "label references")
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
	labels, problem, err := d.appendLabels(d.refs, req)
	if err != nil {
		return err
	}
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
		req.Samples, req.Histograms = req.Samples[:firstSample], req.Histograms[:firstHistogram]
		req.Exemplars = req.Exemplars[:firstExemplar]
		c.refuse(samples+histograms, func() error {
			return fmt.Errorf("%w: time series %d (%s): %s", mapping.ErrInvalid, index, FormatSeries(labels), problem)
		})
		return nil
	}
	if meta != (metadataV2{}) {
		if err := d.addMetadataV2(meta, req); err != nil {
			return err
		}
	}
	if samples+histograms == 0 && len(req.Exemplars) == firstExemplar {
		return nil
	}
	return d.addSeries(labels, firstSample, req)
}

// appendLabels builds the label bytes of some references in the scratch memory. What is wrong with them it says
// as a problem, along with the labels before that.
func (d *Decoder) appendLabels(refs []uint32, req *mapping.WriteRequest) (labels []byte, problem string, err error) {
	dst, start := req.Scratch, len(req.Scratch)
	if len(d.symbols) > 0 && d.symbols[0][0] != 0 {
		problem = "the first symbol of the request is not empty"
	} else if len(refs)%2 != 0 {
		problem = fmt.Sprintf("it has %d label references, an odd number", len(refs))
	}
	for i := 0; problem == "" && i < len(refs); i += 2 {
		name, value := refs[i], refs[i+1]
		if uint64(max(name, value)) >= uint64(len(d.symbols)) {
			problem = fmt.Sprintf("its label references %d and %d lie beyond the %d symbols", name, value, len(d.symbols))
			break
		}
		dst = appendLabel(dst, d.symbols[name], d.symbols[value])
		if d.MaxBytes > 0 && len(dst) > d.MaxBytes {
			return nil, "", fmt.Errorf("%w: labels of the request need more than the %d bytes allowed", ErrTooLarge, d.MaxBytes)
		}
	}
	req.Scratch = dst
	return dst[start:len(dst):len(dst)], problem, nil
}

// appendLabel is mapping.AppendLabel for a name and a value that have their lengths before them already.
func appendLabel(dst, name, value []byte) []byte {
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(2+len(name)+len(value)))
	dst = append(dst, 0x0a)
	dst = append(dst, name...)
	dst = append(dst, 0x12)
	return append(dst, value...)
}

// appendRefs reads references, one or packed. References have 32 bits, what is beyond is dropped.
func appendRefs(refs []uint32, b []byte, i int, typ byte) ([]uint32, int) {
	switch typ {
	case typeVarint:
		v, next := uvarint(b, i)
		return append(refs, uint32(v)), next
	case typeBytes:
		i, to := field(b, i)
		for i >= 0 && i < to {
			var v uint64
			if b[i] < 0x80 {
				v, i = uint64(b[i]), i+1
			} else {
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
