package wire

import (
	"strconv"
	"strings"
	"time"
)

// MovedTo is where the region went, and whether a RegionMovedException says so. The place stands in fields of its own
// for whole calls, and only in the text for regions and actions of a Multi.
func (e *Exception) MovedTo() (server ServerName, ok bool) {
	if e.Simple() != "RegionMovedException" {
		return ServerName{}, false
	}
	server = ServerName{Host: word(e.Message, "hostname="), StartCode: number(word(e.Message, "startCode="))}
	if port := number(word(e.Message, "port=")); port < 1<<16 {
		server.Port = uint16(port)
	}
	if e.Host != "" {
		server.Host, server.Port = e.Host, e.Port
	}
	return server, server.Host != "" && server.Port != 0
}

// ThrottledFor is the pause that an RpcThrottlingException asks for in its text ("... - wait 1mins, 2sec, 30ms"), 0
// when there is none.
func (e *Exception) ThrottledFor() time.Duration {
	_, text, ok := strings.Cut(e.Message, "wait ")
	if !ok || e.Simple() != "RpcThrottlingException" {
		return 0
	}
	var sum time.Duration
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		digits := strings.TrimRight(part, "abcdefghijklmnopqrstuvwxyz")
		n := time.Duration(min(number(digits), uint64(maxThrottle/time.Millisecond)))
		switch part[len(digits):] {
		case "ms":
			sum += n * time.Millisecond
		case "sec":
			sum += min(n, maxThrottle/time.Second) * time.Second
		case "min", "mins":
			sum += min(n, maxThrottle/time.Minute) * time.Minute
		case "hr", "hrs":
			sum += min(n, maxThrottle/time.Hour) * time.Hour
		}
	}
	return min(sum, maxThrottle)
}

// maxThrottle bounds what a server can make a client wait.
const maxThrottle = time.Hour

// word is what follows key in text up to a space, a comma or a full stop at the end of a word.
func word(text, key string) string {
	_, rest, ok := strings.Cut(text, key)
	if !ok {
		return ""
	}
	if end := strings.IndexAny(rest, " ,"); end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSuffix(rest, ".")
}

func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
