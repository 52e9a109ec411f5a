package wire

import "strings"

// Exception is the server's refusal of a call, of a region's part of a Multi, or of one action of it. It is an error.
type Exception struct {
	Class   string // fully qualified Java class
	Message string // first line of the stack trace without the class
	// Host and Port say where the region went (RegionMovedException only), or are empty and 0.
	Host string
	Port uint16
	// DoNotRetry is the server's word that repeating is of no use. It is only sent for whole calls; what to make
	// of it is the client's business.
	DoNotRetry bool
	// Overloaded asks for a longer pause (2.5.3 and later).
	Overloaded bool
}

// Error implements error.
func (e *Exception) Error() string {
	if e.Message == "" {
		return e.Simple()
	}
	return e.Simple() + ": " + e.Message
}

// Simple is the class without its package, fit as a label of a metric.
func (e *Exception) Simple() string { return e.Class[strings.LastIndexByte(e.Class, '.')+1:] }

// AppendTo implements Message.
func (e *Exception) AppendTo(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, e.Class)
	dst = AppendBytesField(dst, 2, e.stackTrace())
	if e.Host != "" {
		dst = AppendBytesField(dst, 3, e.Host)
		dst = AppendUintField(dst, 4, uint64(e.Port))
	}
	dst = AppendBoolField(dst, 5, e.DoNotRetry)
	if e.Overloaded {
		dst = AppendBoolField(dst, 6, true)
	}
	return dst
}

// Parse fills e from an encoded ExceptionResponse.
func (e *Exception) Parse(b []byte) error {
	*e = Exception{}
	var trace []byte
	r := NewReader("ExceptionResponse", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			e.Class = r.String()
		case 2:
			trace = r.Bytes()
		case 3:
			e.Host = r.String()
		case 4:
			e.Port = uint16(min(r.Uint64(), 1<<16-1))
		case 5:
			e.DoNotRetry = r.Bool()
		case 6:
			e.Overloaded = r.Bool()
		}
	}
	e.Message = firstLine(e.Class, trace)
	return r.Err()
}

// appendPair and parsePair are the form an exception has inside a Multi: NameBytesPair{class, stack trace}.
func (e *Exception) appendPair(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, e.Class)
	return AppendBytesField(dst, 2, e.stackTrace())
}

func (e *Exception) parsePair(b []byte) error {
	*e = Exception{}
	var trace []byte
	r := NewReader("NameBytesPair", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			e.Class = r.String()
		case 2:
			trace = r.Bytes()
		}
	}
	e.Message = firstLine(e.Class, trace)
	return r.Err()
}

func (e *Exception) stackTrace() string {
	return e.Class + ": " + e.Message + "\n\tat org.apache.hadoop.hbase"
}

// maxMessage bounds what is kept of a stack trace: some servers put whole requests into the first line.
const maxMessage = 1 << 10

// firstLine is the message of a Java stack trace: its first line without the class in front.
func firstLine(class string, trace []byte) string {
	line := strings.TrimPrefix(string(trace[:min(len(trace), maxMessage+len(class)+2)]), class)
	if end := strings.IndexAny(line, "\r\n"); end >= 0 {
		line = line[:end]
	}
	return strings.ToValidUTF8(strings.TrimPrefix(line, ": "), "\ufffd")
}
