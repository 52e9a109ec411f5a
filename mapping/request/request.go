// Package request is the model of a remote-write request that decoders fill and the write path reads: flat lists of
// series, samples, histograms, exemplars and metadata, whose labels stay the bytes that were sent, and what became of
// them. It does no I/O and holds no locks; one goroutine uses a Write at a time.
package request

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/promtsd/promtsd/mapping"
)

// Write is a remote-write body taken apart, without an object per series or sample: flat lists that are filled
// anew for each request and keep their memory. Every slice of bytes in it points into the body it was read from, or
// into Scratch.
type Write struct {
	Series     []Series
	Samples    []Sample
	Histograms []Histogram // in the order of their series
	Scratch    []byte      // label bytes that the body does not hold in one piece

	// What comes beside the samples, if anything does.
	Exemplars []Exemplar
	Metadata  []Metadata

	// Remote write 2.0 tells labels by references: places in a list of symbols, each with its length before it as a
	// varint.
	Symbols [][]byte
	Refs    []uint32

	// NeedMetricName refuses series without a metric name, which the schema can hold but remote write must not bring.
	NeedMetricName bool

	// Finder was told all series, if there is one.
	Finder Finder

	// Body is the request as it came, in an encoding that those who fill in a Write know; nil if there is none: then
	// AppendFlat makes one. EncodingFlat is AppendFlat's.
	Encoding byte
	Body     []byte
}

// Finder looks series up while a request is read. It expects series in the order in which they came before: so the
// bytes of a series that it expects are compared once, and need not be taken apart before. It serves one request at a
// time.
type Finder interface {
	// Reset begins a request.
	Reset()
	// Expect says how long the label bytes are of the series that it expects next, if b begins with them; else 0.
	Expect(b []byte) int
	// Next is told the label bytes of each series in turn. expected says that they are those of the last Expect.
	Next(labels []byte, expected bool)
}

// Encodings of a body that did not come by remote write, whose encodings package wire numbers.
const (
	EncodingFlat      = 0 // AppendFlat made it
	EncodingFlatBlock = 3 // the same as a block of snappy or s2
)

// Series is one time series of a Write: its label bytes (see AppendLabel), or the range
// Refs[RefsFrom:RefsTo] of an even number of references to its names and values in turn (see LabelsOf), and the range
// Samples[From:To] of its samples, in the order in which they were sent.
type Series struct {
	Labels           []byte
	RefsFrom, RefsTo int
	From, To         int
}

// Sample is a timestamp in milliseconds since 1970 and a value, whose bits are kept as they are.
type Sample struct {
	T int64
	V float64
}

// Histogram is a native histogram of the series at a position in a Write: a message that mapping.ParseHistogram
// reads.
type Histogram struct {
	Series  int
	Message []byte
}

// SamplesOf is the number of samples and histograms of the series at a position.
func (r *Write) SamplesOf(series int) int {
	from := sort.Search(len(r.Histograms), func(i int) bool { return r.Histograms[i].Series >= series })
	to := sort.Search(len(r.Histograms), func(i int) bool { return r.Histograms[i].Series > series })
	return r.Series[series].To - r.Series[series].From + to - from
}

// Reset empties r and keeps its memory.
func (r *Write) Reset() {
	r.Series, r.Samples, r.Histograms, r.Scratch = r.Series[:0], r.Samples[:0], r.Histograms[:0], r.Scratch[:0]
	r.Exemplars, r.Metadata, r.NeedMetricName = r.Exemplars[:0], r.Metadata[:0], false
	r.Symbols, r.Refs = nil, r.Refs[:0]
	r.Encoding, r.Body, r.Finder = EncodingFlat, nil, nil
}

// Label bytes are how a series is known before it is parsed: the label fields of a remote-write 1.0 TimeSeries message
// exactly as they were sent, one after the other:
//
//	0a | uvarint length | 0a | uvarint length | name | 12 | uvarint length | value      for each label
//
// Senders write the same series with the same bytes again and again, so they serve as a key. Different label bytes may
// still mean the same series (another order, an empty value); ParseLabels tells.

// AppendLabel appends one label in that form.
func AppendLabel(dst []byte, name, value string) []byte {
	inner := 2 + uvarintLen(len(name)) + len(name) + uvarintLen(len(value)) + len(value)
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(inner))
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	dst = append(dst, 0x12)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

func uvarintLen(n int) int {
	l := 1
	for n >= 0x80 {
		n >>= 7
		l++
	}
	return l
}

// ParseLabels calls f with each label of some label bytes, in the order in which they stand there. Unknown fields
// inside a label are passed over, a repeated field counts as its last one, an absent one is empty, all as protobuf
// says. name and value point into b.
func ParseLabels(b []byte, f func(name, value []byte) error) error {
	for len(b) > 0 {
		if b[0] != 0x0a {
			return fmt.Errorf("%w: label bytes: field tag %#x where a label was expected", mapping.ErrInvalid, b[0])
		}
		label, rest, err := lengthDelimited(b[1:])
		if err != nil {
			return err
		}
		b = rest
		var name, value []byte
		for len(label) > 0 {
			tag, n := binary.Uvarint(label)
			if n <= 0 {
				return fmt.Errorf("%w: label bytes: truncated field tag", mapping.ErrInvalid)
			}
			label = label[n:]
			switch tag {
			case 1<<3 | 2:
				name, label, err = lengthDelimited(label)
			case 2<<3 | 2:
				value, label, err = lengthDelimited(label)
			default:
				label, err = skipField(label, tag)
			}
			if err != nil {
				return err
			}
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	return nil
}

func lengthDelimited(b []byte) (field, rest []byte, err error) {
	l, n := binary.Uvarint(b)
	if n <= 0 || l > uint64(len(b)-n) {
		return nil, nil, fmt.Errorf("%w: label bytes: length beyond the end", mapping.ErrInvalid)
	}
	return b[n : n+int(l)], b[n+int(l):], nil
}

func skipField(b []byte, tag uint64) ([]byte, error) {
	switch tag & 7 {
	case 0:
		if _, n := binary.Uvarint(b); n > 0 {
			return b[n:], nil
		}
	case 1:
		if len(b) >= 8 {
			return b[8:], nil
		}
	case 2:
		_, rest, err := lengthDelimited(b)
		return rest, err
	case 5:
		if len(b) >= 4 {
			return b[4:], nil
		}
	}
	return nil, fmt.Errorf("%w: label bytes: field tag %d cannot be read", mapping.ErrInvalid, tag)
}

// Reason says in a word why samples were refused; it is a metric's label value.
type Reason string

// The reasons for which a sample is refused for good: sending it again cannot help.
const (
	ReasonInvalidLabels Reason = "invalid_labels"      // no metric name, a repeated label, bytes that are no UTF-8
	ReasonLabelLimit    Reason = "label_limit"         // too many labels, or a name or value that is too long
	ReasonTimestamp     Reason = "timestamp"           // before 1970, after 2106, or too far in the future
	ReasonInfinity      Reason = "infinity"            // an infinite value, where the settings refuse those
	ReasonUIDsExhausted Reason = "uids_exhausted"      // no UID left on the width that was chosen for the tables
	ReasonNewNames      Reason = "new_names_limit"     // too many names were new; the series may be stored later
	ReasonActiveSeries  Reason = "active_series_limit" // too many series are active; it may be stored later
	ReasonUIDDamaged    Reason = "uid_damaged"         // a cell of the UID table that the series needs cannot be read
	ReasonHistogram     Reason = "histogram"           // a native histogram that contradicts itself, or is too large
	ReasonMalformed     Reason = "malformed_series"    // a series that contradicts the protocol
)

// SampleReasons are all reasons for which samples and native histograms are refused.
var SampleReasons = []Reason{
	ReasonInvalidLabels, ReasonLabelLimit, ReasonTimestamp, ReasonInfinity, ReasonUIDsExhausted, ReasonNewNames,
	ReasonActiveSeries,
	ReasonUIDDamaged, ReasonHistogram, ReasonMalformed,
}

// Result says what became of a Write.
type Result struct {
	Written    int            // samples that are stored now, exact repeats included
	Histograms int            // the same of native histograms
	Refused    map[Reason]int // samples that are not and never will be, nil if there are none
	Examples   []error        // the first few refusals, each naming the series and what to do

	Exemplars ExemplarResult
}

const maxExamples = 10

// HasExamples says that there are as many examples as are kept: another need not be made.
func (r *Result) HasExamples() bool { return len(r.Examples) >= maxExamples }

// Refuse notes that samples or histograms of one series were refused.
func (r *Result) Refuse(reason Reason, samples int, example error) {
	if r.Refused == nil {
		r.Refused = make(map[Reason]int)
	}
	r.Refused[reason] += samples
	if !r.HasExamples() {
		r.Examples = append(r.Examples, example)
	}
}
