package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/mapping"
)

// ResponseType is a form of the answer to a remote read.
type ResponseType string

// The two forms: all samples in one message, or XOR chunks in a stream of frames.
const (
	Samples  ResponseType = "samples"
	Streamed ResponseType = "streamed_xor_chunks"
)

// ReadRequest is a remote-read request.
type ReadRequest struct {
	Queries []ReadQuery
	Type    ResponseType // the first of the accepted ones that exists here
}

// ReadQuery asks for the series that all matchers match, and their samples from MinT to MaxT, both inclusive, in
// milliseconds since 1970. Any int64 may occur; MinT above MaxT asks for nothing.
type ReadQuery struct {
	MinT, MaxT int64
	Matchers   []*labels.Matcher
	LabelsOnly bool // the samples will not be looked at
}

// ParseReadRequest reads an inflated prometheus.ReadRequest. Errors are ErrMalformed, or bounds.ErrTooComplex for one with
// too many queries, or matchers that cost too much to compile.
func ParseReadRequest(body []byte) (ReadRequest, error) {
	if err := countQueries(body); err != nil {
		return ReadRequest{}, err
	}
	var msg prompb.ReadRequest
	if err := msg.Unmarshal(body); err != nil {
		return ReadRequest{}, fmt.Errorf("%w: read request: %w", ErrMalformed, err)
	}
	typ, err := negotiate(msg.AcceptedResponseTypes)
	if err != nil {
		return ReadRequest{}, err
	}
	req := ReadRequest{Type: typ}
	var patterns bounds.Patterns
	for i, q := range msg.Queries {
		query := ReadQuery{MinT: q.StartTimestampMs, MaxT: q.EndTimestampMs}
		for _, m := range q.Matchers {
			if m.Type == prompb.LabelMatcher_RE || m.Type == prompb.LabelMatcher_NRE {
				if err := patterns.Add(m.Value); err != nil {
					return ReadRequest{}, fmt.Errorf("query %d: matcher of label %q: %w", i, m.Name, err)
				}
			}
			matcher, err := parseMatcher(m)
			if err != nil {
				return ReadRequest{}, fmt.Errorf("%w: query %d: %w", ErrMalformed, i, err)
			}
			query.Matchers = append(query.Matchers, matcher)
		}
		if h := q.Hints; h != nil {
			query.LabelsOnly = h.Func == "series"
			query.narrow(h.StartMs, h.EndMs)
		}
		req.Queries = append(req.Queries, query)
	}
	return req, nil
}

// maxFields bounds the fields of a read request's messages, each of which becomes an object: all but queries and matchers
// are few.
const maxFields = 8 * (bounds.MaxQueries + bounds.MaxMatchers)

// countQueries refuses a request of which too much would be made.
func countQueries(body []byte) error {
	var queries, matchers, fields int
	err := eachField(body, func(num int32, query []byte) error {
		fields++
		if num == 2 { // accepted response types, packed
			fields += len(query)
		}
		if num != 1 {
			return nil
		}
		queries++
		return eachField(query, func(num int32, part []byte) error {
			fields++
			switch num {
			case 3:
				matchers++
			case 4: // hints
				return eachField(part, func(int32, []byte) error {
					fields++
					return nil
				})
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: read request: %w", ErrMalformed, err)
	case queries > bounds.MaxQueries || matchers > bounds.MaxMatchers || fields > maxFields:
		return fmt.Errorf("%w: %d queries, %d matchers and %d fields in all; at most %d, %d and %d are allowed",
			bounds.ErrTooComplex, queries, matchers, fields, bounds.MaxQueries, bounds.MaxMatchers, maxFields)
	}
	return nil
}

// eachField calls f with each field of a message, and its content if it is delimited by a length.
func eachField(message []byte, f func(num int32, content []byte) error) error {
	for i := 0; i < len(message); {
		num, typ, next := tag(message, i)
		if next < 0 {
			return malformed(i, "field tag")
		}
		var content []byte
		if typ == typeBytes {
			from, to := field(message, next)
			if from < 0 {
				return malformed(i, fmt.Sprintf("field %d", num))
			}
			content = message[from:to]
		}
		if err := f(num, content); err != nil {
			return err
		}
		if next = skip(message, next, typ); next < 0 {
			return malformed(i, fmt.Sprintf("field %d of wire type %d", num, typ))
		}
		i = next
	}
	return nil
}

// narrow takes the hinted range, which is what the selector will look at, where it lies within that of the query, which
// may be that of a whole expression. A range that was left out (0 to 0) is no hint.
func (q *ReadQuery) narrow(start, end int64) {
	minT, maxT := max(q.MinT, start), min(q.MaxT, end)
	if (start != 0 || end != 0) && minT <= maxT {
		q.MinT, q.MaxT = minT, maxT
	}
}

func negotiate(accepted []prompb.ReadRequest_ResponseType) (ResponseType, error) {
	if len(accepted) == 0 {
		return Samples, nil
	}
	for _, t := range accepted {
		switch t {
		case prompb.ReadRequest_SAMPLES:
			return Samples, nil
		case prompb.ReadRequest_STREAMED_XOR_CHUNKS:
			return Streamed, nil
		}
	}
	return "", fmt.Errorf("%w: none of the accepted response types %v is supported; supported are SAMPLES (0) and "+
		"STREAMED_XOR_CHUNKS (1)", ErrMalformed, accepted)
}

func parseMatcher(m *prompb.LabelMatcher) (*labels.Matcher, error) {
	var typ labels.MatchType
	switch m.Type {
	case prompb.LabelMatcher_EQ:
		typ = labels.MatchEqual
	case prompb.LabelMatcher_NEQ:
		typ = labels.MatchNotEqual
	case prompb.LabelMatcher_RE:
		typ = labels.MatchRegexp
	case prompb.LabelMatcher_NRE:
		typ = labels.MatchNotRegexp
	default:
		return nil, fmt.Errorf("matcher of label %q has the unknown type %d", m.Name, m.Type)
	}
	matcher, err := labels.NewMatcher(typ, m.Name, m.Value)
	if err != nil {
		return nil, fmt.Errorf("matcher of label %q: %w", m.Name, err)
	}
	return matcher, nil
}

// SamplesResponse builds a prometheus.ReadResponse:
//
//	ReadResponse  1 results     (one for each query, in order)
//	QueryResult   1 timeseries
//	TimeSeries    1 labels      2 samples   4 histograms
//	Sample        1 value       2 timestamp
//
// It is written by hand because the generated encoder takes -0 for the default value and leaves it out, and with it the
// sign. The order of calls is that of the message: Query, then for each series Series and any number of Points.
type SamplesResponse struct {
	// MaxBytes bounds the message. 0 means no bound but that of the format, 2 GiB.
	MaxBytes int

	buf         []byte
	queryBegin  int // where the current query result begins, or 0
	seriesBegin int // where the current series begins, or 0
}

// gap is left before a message until its length is known: a tag of one byte and a length of up to five.
const gap = 6

// Reset makes the response empty and keeps its memory.
func (r *SamplesResponse) Reset() { r.buf, r.queryBegin, r.seriesBegin = r.buf[:0], 0, 0 }

// Query begins the result of the next query.
func (r *SamplesResponse) Query() {
	r.endQuery()
	r.buf = append(r.buf, make([]byte, gap)...)
	r.queryBegin = len(r.buf)
}

// Series begins the next series of the current query. More than MaxBytes is ErrTooLarge.
func (r *SamplesResponse) Series(ls labels.Labels) error {
	r.endSeries()
	r.buf = append(r.buf, make([]byte, gap)...)
	r.seriesBegin = len(r.buf)
	ls.Range(func(l labels.Label) { r.buf = mapping.AppendLabel(r.buf, l.Name, l.Value) })
	return r.checkSize()
}

// Points adds samples to the current series. More than MaxBytes is ErrTooLarge.
func (r *SamplesResponse) Points(p *mapping.Points) error {
	dst := r.buf
	for i, t := range p.T {
		if h := p.Histogram(i); !h.IsZero() {
			var err error
			if dst, err = appendHistogram(dst, t, h); err != nil {
				return err
			}
			continue
		}
		at := len(dst)
		dst = append(dst, 2<<3|typeBytes, 0)
		if bits := math.Float64bits(p.V[i]); bits != 0 {
			dst = append(dst, 1<<3|typeFixed64)
			dst = binary.LittleEndian.AppendUint64(dst, bits)
		}
		if t != 0 {
			dst = append(dst, 2<<3|typeVarint)
			dst = binary.AppendUvarint(dst, uint64(t))
		}
		dst[at+1] = byte(len(dst) - at - 2)
	}
	r.buf = dst
	return r.checkSize()
}

// appendHistogram appends a native histogram as a field of a series.
func appendHistogram(dst []byte, t int64, h mapping.Histogram) ([]byte, error) {
	m := h.Message(t)
	size := m.Size()
	dst = binary.AppendUvarint(append(dst, 4<<3|typeBytes), uint64(size))
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	_, err := m.MarshalToSizedBuffer(dst[at:])
	return dst, err
}

// Finish ends the response and returns it. It is valid until Reset.
func (r *SamplesResponse) Finish() []byte {
	r.endQuery()
	return r.buf
}

func (r *SamplesResponse) checkSize() error {
	limit := r.MaxBytes
	if limit <= 0 || limit > math.MaxInt32 {
		limit = math.MaxInt32
	}
	if len(r.buf) > limit {
		return fmt.Errorf("%w: the answer needs more than the %d bytes allowed", ErrTooLarge, limit)
	}
	return nil
}

func (r *SamplesResponse) endQuery() {
	r.endSeries()
	if r.queryBegin > 0 {
		r.buf = closeGap(r.buf, r.queryBegin)
		r.queryBegin = 0
	}
}

func (r *SamplesResponse) endSeries() {
	if r.seriesBegin > 0 {
		r.buf = closeGap(r.buf, r.seriesBegin)
		r.seriesBegin = 0
	}
}

// closeGap writes field 1 with its length before the message that begins at begin and moves that up to it.
func closeGap(b []byte, begin int) []byte {
	size := len(b) - begin
	head := append(b[:begin-gap], 1<<3|typeBytes)
	head = binary.AppendUvarint(head, uint64(size))
	return append(head, b[begin:begin+size]...)
}
