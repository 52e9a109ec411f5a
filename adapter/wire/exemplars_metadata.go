package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// Exemplars and metadata of a body: exemplars, which belong to a series, and metadata of metric families.
//
//	Exemplar of 1.0   1 labels   2 value   3 timestamp
//	Exemplar of 2.0   1 labels_refs   2 value   3 timestamp
//	MetricMetadata    1 type   2 metric_family_name   4 help   5 unit

// metadataTypes are the types of metric families by their numbers, which both versions share. Other numbers mean
// unknown.
var metadataTypes = [...]string{"unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info",
	"stateset"}

func metadataType(number uint64) string {
	if n := uint32(number); n < uint32(len(metadataTypes)) {
		return metadataTypes[n]
	}
	return metadataTypes[0]
}

// exemplarV1 appends an exemplar of the series that is the next to be added.
func (d *Decoder) exemplarV1(b []byte, i int, req *request.Write) error {
	if err := exemplarShapeV1.check(b, i); err != nil {
		return err
	}
	return d.addExemplar(readExemplar(b, i, rebuildLabels(b, i, req)), req)
}

// exemplarV2 does so in 2.0. An exemplar whose references are malformed is counted and left out. They are looked at
// behind those of the series and taken off again.
func (d *Decoder) exemplarV2(b []byte, i, index int, req *request.Write, c *Counts) error {
	if err := exemplarShapeV2.check(b, i); err != nil {
		return err
	}
	series := len(req.Refs)
	for at := i; at < len(b); {
		num, typ, next := tag(b, at)
		if num == 1 {
			before := cap(req.Refs)
			req.Refs, at = appendRefs(req.Refs, b, next, typ)
			if err := d.grew(cap(req.Refs)-before, refBytes); err != nil {
				return err
			}
			continue
		}
		at = skip(b, next, typ)
	}
	refs := req.Refs[series:]
	req.Refs = req.Refs[:series]
	if problem := d.checkRefs(refs); problem != "" {
		c.refuse(0, func() error {
			return fmt.Errorf("%w: time series %d: of an exemplar: %s", mapping.ErrInvalid, index, problem)
		})
		return nil
	}
	if d.MaxBytes > 0 && len(req.Scratch)+req.LabelBytes(refs) > d.MaxBytes {
		return fmt.Errorf("%w: labels of exemplars need more than the %d bytes allowed", ErrTooLarge, d.MaxBytes)
	}
	start := len(req.Scratch)
	req.Scratch = req.AppendLabels(req.Scratch, refs)
	return d.addExemplar(readExemplar(b, i, req.Scratch[start:len(req.Scratch):len(req.Scratch)]), req)
}

// readExemplar reads the value and the time of an exemplar whose structure has been checked.
func readExemplar(b []byte, i int, labels []byte) request.Exemplar {
	e := request.Exemplar{Labels: labels}
	for i < len(b) {
		num, typ, next := tag(b, i)
		i = skip(b, next, typ)
		switch num {
		case 2:
			e.V = math.Float64frombits(binary.LittleEndian.Uint64(b[next:]))
		case 3:
			t, _ := uvarint(b, next)
			e.T = int64(t)
		}
	}
	return e
}

func (d *Decoder) addExemplar(e request.Exemplar, req *request.Write) error {
	e.Series = len(req.Series)
	before := cap(req.Exemplars)
	req.Exemplars = append(req.Exemplars, e)
	if d.MaxBytes > 0 && (len(req.Exemplars) > d.MaxBytes/exemplarBytes || len(req.Scratch) > d.MaxBytes) {
		return fmt.Errorf("%w: %d exemplars need more than the %d bytes allowed", ErrTooLarge, len(req.Exemplars), d.MaxBytes)
	}
	if err := d.scratchGrew(req); err != nil {
		return err
	}
	return d.grew(cap(req.Exemplars)-before, exemplarBytes)
}

// metadataV1 appends a message of metadata.
func (d *Decoder) metadataV1(b []byte, i int, req *request.Write) error {
	if err := metadataShapeV1.check(b, i); err != nil {
		return err
	}
	m := request.Metadata{Type: metadataTypes[0]}
	for i < len(b) {
		num, typ, next := tag(b, i)
		i = skip(b, next, typ)
		to := &m.Family
		switch num {
		case 1:
			number, _ := uvarint(b, next)
			m.Type = metadataType(number)
			continue
		case 2:
		case 4:
			to = &m.Help
		case 5:
			to = &m.Unit
		default:
			continue
		}
		from, end := field(b, next)
		*to = b[from:end:end]
	}
	return d.addMetadata(m, req)
}

// addMetadataV2 appends the metadata of a series, whose references have been checked, unless the one before
// said the same of its family: senders repeat it with each of a family's series.
func (d *Decoder) addMetadataV2(meta metadataV2, refs []uint32, req *request.Write) error {
	name, known := d.metricName(refs), len(req.Metadata) > 0 && meta == d.meta
	if known && name == d.metaName {
		return nil
	}
	typ := metadataType(uint64(meta.typ))
	family := request.MetricFamily(d.symbol(name), typ)
	known = known && bytes.Equal(family, req.Metadata[len(req.Metadata)-1].Family)
	d.meta, d.metaName = meta, name
	if known {
		return nil
	}
	return d.addMetadata(request.Metadata{
		Family: family, Type: typ, Help: d.symbol(meta.help), Unit: d.symbol(meta.unit),
	}, req)
}

func (d *Decoder) addMetadata(m request.Metadata, req *request.Write) error {
	before := cap(req.Metadata)
	req.Metadata = append(req.Metadata, m)
	if d.MaxBytes > 0 && len(req.Metadata) > d.MaxBytes/metadataBytes {
		return fmt.Errorf("%w: metadata of %d metric families needs more than the %d bytes allowed", ErrTooLarge,
			len(req.Metadata), d.MaxBytes)
	}
	return d.grew(cap(req.Metadata)-before, metadataBytes)
}

// metricName is the reference of a series' metric name; 0, which is that of an empty text, if it has none.
func (d *Decoder) metricName(refs []uint32) uint32 {
	for i := 0; i < len(refs); i += 2 {
		if string(d.symbol(refs[i])) == "__name__" {
			return refs[i+1]
		}
	}
	return 0
}

// symbol is the text of a symbol.
func (d *Decoder) symbol(ref uint32) []byte {
	if ref == 0 {
		return nil // there may be no symbols at all
	}
	from, to := field(d.symbols[ref], 0)
	return d.symbols[ref][from:to:to]
}
