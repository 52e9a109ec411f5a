package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/promtsd/promtsd/mapping/request"
)

// Decoder takes remote-write bodies apart. The zero value is ready and has no limit. It keeps memory between calls, and
// the last body alive, and serves one call at a time.
type Decoder struct {
	// MaxBytes bounds each list that a body is taken apart into: a body can be written so that it takes twenty times
	// its own size. More is ErrTooLarge. 0 means no bound.
	MaxBytes int

	// Take is asked for the memory of lists as they grow; false ends the decoding with ErrNoMemory. nil: there is enough.
	Take func(bytes int) bool

	// Finder is told the series of bodies of 1.0, and becomes that of the request; nil: there is none.
	Finder request.Finder

	// Of 2.0.
	symbols    [][]byte // each with its length before it
	longest    int      // bytes of a symbol
	labelBytes int      // that the references of all series make, if they were counted
	counted    bool

	scratch  int        // memory of the request's scratch that was taken
	meta     metadataV2 // 2.0: the latest that went into the request
	metaName uint32     // and the reference of the metric name that it came with
}

// Memory that an element of each list takes.
const (
	seriesBytes    = 56
	sampleBytes    = 16
	histogramBytes = 32
	exemplarBytes  = 48
	metadataBytes  = 88
	symbolBytes    = 24
	refBytes       = 4
)

// Memory is how many bytes the lists of a request take, with what they have to spare.
func Memory(req *request.Write) int {
	return cap(req.Series)*seriesBytes + cap(req.Samples)*sampleBytes + cap(req.Histograms)*histogramBytes +
		cap(req.Symbols)*symbolBytes + cap(req.Refs)*refBytes + cap(req.Scratch) + cap(req.Exemplars)*exemplarBytes +
		cap(req.Metadata)*metadataBytes
}

// Counts is what of a body did not go into the WriteRequest.
type Counts struct {
	// Malformed counts the time series and exemplars that contradict the protocol. Refused holds the reasons, with the
	// samples and histograms of those series, which are not in the WriteRequest.
	Malformed int
	Refused   request.Result
}

const maxMalformedExamples = 5

// refuse notes a malformed series or exemplar. The text is made only while it can be of use.
func (c *Counts) refuse(samples int, example func() error) {
	c.Malformed++
	if len(c.Refused.Examples) < maxMalformedExamples {
		c.Refused.Refuse(request.ReasonMalformed, samples, example())
		return
	}
	c.Refused.Refused[request.ReasonMalformed] += samples
}

// DecodeV1 takes a remote-write 1.0 body apart, an inflated prometheus.WriteRequest:
//
//	WriteRequest  1 timeseries  3 metadata
//	TimeSeries    1 labels      2 samples   3 exemplars   4 histograms
//	Sample        1 value       2 timestamp
//
// req is reset first; its label bytes point into body where they stand there in one piece, and its histograms do.
// Series without samples, histograms and exemplars are left out. The order of series and samples is that of the body.
// An error is ErrMalformed, also for a body of 2.0, or ErrTooLarge, and then req is of no use.
func (d *Decoder) DecodeV1(body []byte, req *request.Write) (Counts, error) {
	d.begin(req)
	if d.Finder != nil {
		d.Finder.Reset()
		req.Finder = d.Finder
	}
	var c Counts
	ours, theirs := false, false // there are fields of 1.0, of 2.0
	for i := 0; i < len(body); {
		num, typ, next := tag(body, i)
		if next < 0 {
			return c, malformed(i, "field tag")
		}
		if num != 1 && num != 3 {
			if next = skip(body, next, typ); next < 0 {
				return c, malformed(i, "unknown field")
			}
			theirs = theirs || num == 4 || num == 5
			i = next
			continue
		}
		ours = true
		from, to := field(body, next)
		if typ != typeBytes || from < 0 {
			return c, malformed(i, "time series or metadata")
		}
		var err error
		if num == 1 {
			err = d.seriesV1(body[:to], from, req)
		} else {
			err = d.metadataV1(body[:to], from, req)
		}
		if err != nil {
			return c, err
		}
		i = to
	}
	if theirs && !ours {
		return c, fmt.Errorf("%w: io.prometheus.write.v2.Request (2.0), not prometheus.WriteRequest (1.0)", ErrOtherVersion)
	}
	return c, nil
}

// begin begins a request.
func (d *Decoder) begin(req *request.Write) {
	req.Reset()
	d.scratch = cap(req.Scratch)
}

// grew takes the memory of elements that a list has grown by.
func (d *Decoder) grew(elements, size int) error {
	if elements > 0 && d.Take != nil && !d.Take(elements*size) {
		return ErrNoMemory
	}
	return nil
}

// scratchGrew takes what the scratch of a request has grown by.
func (d *Decoder) scratchGrew(req *request.Write) error {
	more := cap(req.Scratch) - d.scratch
	d.scratch += more
	return d.grew(more, 1)
}

func (d *Decoder) seriesV1(b []byte, i int, req *request.Write) error {
	begin, firstSample, firstHistogram, firstExemplar := i, len(req.Samples), len(req.Histograms), len(req.Exemplars)
	expected := 0
	if d.Finder != nil {
		expected = d.Finder.Expect(b[i:])
	}
	if i += expected; expected == 0 {
		i = shortLabels(b, i)
	}
	labelsFrom, labelsTo, asSent := begin, i, true
	for i < len(b) {
		num, typ, next := tag(b, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		if num > 4 {
			if next = skip(b, next, typ); next < 0 {
				return malformed(i, "unknown field")
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
		case 1:
			if labelsFrom == labelsTo {
				labelsFrom = i
			} else if labelsTo != i {
				asSent = false
			}
			labelsTo = to
			if next != i+1 || from > next+maxLengthBytes || !plainLabel(b[:to], from) {
				asSent = false
				err = labelShape.check(b[:to], from)
			}
		case 2:
			err = d.sample(b[:to], from, sampleShapeV1, req)
		case 3:
			err = d.exemplarV1(b[:to], from, req)
		case 4:
			err = d.histogram(b[:to], from, histogramShape, req)
		}
		if err != nil {
			return err
		}
		i = to
	}

	if len(req.Samples) == firstSample && len(req.Histograms) == firstHistogram && len(req.Exemplars) == firstExemplar {
		return nil
	}
	labels := b[labelsFrom:labelsTo:labelsTo]
	if !asSent {
		labels = rebuildLabels(b, begin, req)
	}
	if d.Finder != nil {
		d.Finder.Next(labels, expected > 0 && asSent && len(labels) == expected)
	}
	return d.addSeries(request.Series{Labels: labels, From: firstSample, To: len(req.Samples)}, req)
}

func (d *Decoder) addSeries(s request.Series, req *request.Write) error {
	before := cap(req.Series)
	req.Series = append(req.Series, s)
	if d.MaxBytes > 0 && (len(req.Series) > d.MaxBytes/seriesBytes || len(req.Scratch) > d.MaxBytes) {
		return fmt.Errorf("%w: %d series need more than the %d bytes allowed", ErrTooLarge, len(req.Series), d.MaxBytes)
	}
	if err := d.scratchGrew(req); err != nil {
		return err
	}
	return d.grew(cap(req.Series)-before, seriesBytes)
}

// histogram appends a native histogram of the series that will be the next. What it says is looked at later.
func (d *Decoder) histogram(b []byte, i int, s shape, req *request.Write) error {
	if err := s.check(b, i); err != nil {
		return err
	}
	if d.MaxBytes > 0 && len(req.Histograms) >= d.MaxBytes/histogramBytes {
		return fmt.Errorf("%w: %d histograms need more than the %d bytes allowed", ErrTooLarge, len(req.Histograms),
			d.MaxBytes)
	}
	before := cap(req.Histograms)
	req.Histograms = append(req.Histograms, request.Histogram{Series: len(req.Series), Message: b[i:]})
	return d.grew(cap(req.Histograms)-before, histogramBytes)
}

// sample appends one sample. All known senders write it as 09 value 10 timestamp and, in 2.0, 18 start timestamp.
func (d *Decoder) sample(b []byte, i int, s shape, req *request.Write) error {
	var v, t uint64
	if len(b)-i >= 10 && b[i] == 1<<3|typeFixed64 && b[i+9] == 2<<3|typeVarint {
		v = binary.LittleEndian.Uint64(b[i+1:])
		next := 0
		if t, next = timestamp(b, i+10); next < 0 {
			return malformed(i, "timestamp of a sample")
		}
		i = next
	}
	for i < len(b) {
		num, typ, next := tag(b, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		if next = s.checkField(b, next, num, typ); next < 0 {
			return malformed(i, "field of a sample")
		}
		switch num {
		case 1:
			v = binary.LittleEndian.Uint64(b[next-8:])
		case 2:
			_, _, from := tag(b, i)
			t, _ = uvarint(b, from)
		}
		i = next
	}
	if d.MaxBytes > 0 && len(req.Samples) >= d.MaxBytes/sampleBytes {
		return fmt.Errorf("%w: %d samples need more than the %d bytes allowed", ErrTooLarge, len(req.Samples), d.MaxBytes)
	}
	before := cap(req.Samples)
	req.Samples = append(req.Samples, request.Sample{T: int64(t), V: math.Float64frombits(v)})
	return d.grew(cap(req.Samples)-before, sampleBytes)
}

// timestamp is uvarint, faster for six bytes, which the milliseconds from 2004 to 2109 have.
func timestamp(b []byte, i int) (t uint64, next int) {
	if len(b)-i < 6 {
		return uvarint(b, i)
	}
	x := uint64(binary.LittleEndian.Uint32(b[i:])) | uint64(binary.LittleEndian.Uint16(b[i+4:]))<<32
	if x&0x8080_8080_8080 != 0x0080_8080_8080 {
		return uvarint(b, i)
	}
	return x&0x7f | x>>1&(0x7f<<7) | x>>2&(0x7f<<14) | x>>3&(0x7f<<21) | x>>4&(0x7f<<28) | x>>5&(0x7f<<35), i + 6
}

// maxLengthBytes bounds the bytes of a length that is passed on as it was sent. Longer ones are legal, but not every
// reader of label bytes need know them.
const maxLengthBytes = 5

// shortLabels passes over label fields as nearly all are: a name and a value, all lengths in one byte. It only saves
// time: what stands behind may be labels as well.
func shortLabels(b []byte, i int) int {
	for len(b)-i >= 6 {
		head := binary.LittleEndian.Uint32(b[i:]) // tag, length, tag, length
		to, value := i+2+int(head>>8&0x7f), i+4+int(head>>24&0x7f)
		if head&0x80ff_80ff != 0x000a_000a || to > len(b) || value+2 > to ||
			int(binary.LittleEndian.Uint16(b[value:])) != (to-value-2)<<8|0x12 {
			break
		}
		i = to
	}
	return i
}

// plainLabel says whether a label message holds at most a name and then at most a value, which is what every sender
// writes and every reader of label bytes understands.
func plainLabel(b []byte, i int) bool {
	for want := byte(1<<3 | typeBytes); i < len(b) && want <= 2<<3|typeBytes; want += 1 << 3 {
		if b[i] != want {
			continue
		}
		from, to := field(b, i+1)
		if from < 0 || from > i+1+maxLengthBytes {
			return false
		}
		i = to
	}
	return i == len(b)
}

// rebuildLabels writes the labels of a series whose structure has been checked into the scratch memory, in the form
// that request.AppendLabel gives them.
func rebuildLabels(b []byte, i int, req *request.Write) []byte {
	start := len(req.Scratch)
	for i < len(b) {
		num, typ, next := tag(b, i)
		if num == 1 {
			from, to := field(b, next)
			name, value := label(b[:to], from)
			req.Scratch = request.AppendLabel(req.Scratch, string(name), string(value))
		}
		i = skip(b, next, typ)
	}
	return req.Scratch[start:len(req.Scratch):len(req.Scratch)]
}

// label reads a label message whose structure has been checked. Of a repeated field the last one counts.
func label(b []byte, i int) (name, value []byte) {
	for i < len(b) {
		num, typ, next := tag(b, i)
		i = skip(b, next, typ)
		switch num {
		case 1:
			from, to := field(b, next)
			name = b[from:to]
		case 2:
			from, to := field(b, next)
			value = b[from:to]
		}
	}
	return name, value
}
