package wire

import (
	"errors"
	"fmt"
)

// ErrTooDeep marks a body in which messages stand inside each other deeper than any sender nests them. What unmarshals
// them calls itself for each level, and would end the process.
var ErrTooDeep = errors.New("messages are nested too deep")

const (
	maxOTLPDepth = 100

	// What a message takes of memory when it is unmarshalled, however few bytes it has: two are enough. Down to the
	// points, which are the fifth level (resource metrics, scope metrics, metrics, data, points), they are larger than the
	// attributes below.
	otlpPointDepth = 5
	otlpPoint      = 256
	otlpAttribute  = 64
	otlpNumber     = 16 // a byte that is no message's may be a number of eight, in a list that grows

	otlpJSONObject = 256
	otlpJSONArray  = 64
	otlpJSONByte   = 2
)

// OTLPMemory is about how many bytes of memory an OTLP request in protobuf takes at most when it is unmarshalled.
// Nothing is made of it: whatever can be read as a message is counted as one, which depends on no version of the
// format, up to where it cannot be read. The error is ErrTooDeep.
func OTLPMemory(body []byte) (int64, error) { return otlpMemory(body, 1) }

// otlpMemory is what the fields of a message take. depth is that of messages in it.
func otlpMemory(b []byte, depth int) (memory int64, err error) {
	if depth > maxOTLPDepth {
		return 0, fmt.Errorf("%w: more than %d", ErrTooDeep, maxOTLPDepth)
	}
	element, found := int64(otlpAttribute), false
	if depth <= otlpPointDepth {
		element = otlpPoint
	}
	for i := 0; i < len(b); {
		_, typ, next := tag(b, i)
		if next < 0 {
			break
		}
		if typ != typeBytes {
			if i = skip(b, next, typ); i < 0 {
				break
			}
			continue
		}
		from, to := field(b, next)
		if from < 0 {
			break
		}
		inside, err := otlpMemory(b[from:to], depth+1)
		if err != nil {
			return 0, err
		}
		memory += element + inside
		i, found = to, true
	}
	if !found {
		memory = int64(len(b)) * otlpNumber
	}
	return memory, nil
}

// OTLPJSONMemory is OTLPMemory of a request in JSON.
func OTLPJSONMemory(body []byte) (int64, error) {
	memory := int64(len(body)) * otlpJSONByte
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			memory += otlpJSONObject
			depth++
		case c == '[':
			memory += otlpJSONArray
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth > maxOTLPDepth {
			return 0, fmt.Errorf("%w: more than %d", ErrTooDeep, maxOTLPDepth)
		}
	}
	return memory, nil
}
