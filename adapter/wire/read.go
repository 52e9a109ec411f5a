package wire

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter/bounds"
)

// ResponseType is an encoding of the answer to a remote read.
type ResponseType string

// The two response types: all samples in one message, or XOR chunks in a stream of frames.
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

// ParseReadRequest reads an inflated prometheus.ReadRequest. Errors are ErrMalformed, or bounds.ErrTooComplex for one
// with too many queries, or matchers that cost too much to compile.
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

// maxFields bounds the fields of a read request's messages, each of which becomes an object: all but queries and
// matchers are few.
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
