package client

import (
	"errors"
	"fmt"
	"strings"
)

// What the caller can do about an error decides which of these it wraps.
var (
	// ErrUnavailable marks a failure that may pass: the context ended, or the client was closed, before the cluster did
	// what it was asked.
	ErrUnavailable = errors.New("hbase is unavailable")
	// ErrNoTable marks a table that does not exist.
	ErrNoTable = errors.New("no such table")
	// ErrNoFamily marks a column family that the table does not have.
	ErrNoFamily = errors.New("no such column family")
	// ErrTableDisabled marks a table that is disabled or being disabled.
	ErrTableDisabled = errors.New("table is disabled")
	// ErrTableExists marks the creation of a table that is there.
	ErrTableExists = errors.New("table exists")
	// ErrTooLarge marks a cell that the servers do not take because of its size.
	ErrTooLarge = errors.New("too large for the servers")
	// ErrRejected marks what the server refuses as long as nobody changes something: missing rights, a bad filter, a quota
	// used up.
	ErrRejected = errors.New("request was rejected")
	// ErrInvalid marks a request that was never sent because it breaks the rules of the format.
	ErrInvalid = errors.New("invalid request")
	// ErrClosed marks a verb on a closed client.
	ErrClosed = errors.New("client is closed")
)

// Error is why a verb has failed.
type Error struct {
	Verb   string // "put", "scan", ...
	Table  string // empty for what concerns no table
	Row    []byte // the row, or the first one of several, whose region was asked; nil where none was
	Region string // encoded name of the region of the last attempt; empty when it was not found
	Server string // host:port of the last attempt; empty when it was not known
	// Attempts counts those that were made; 0 when the first could not even begin.
	Attempts int
	// MayHaveApplied is false only when it is certain that no part of the request took effect, or will.
	MayHaveApplied bool
	// Class is one of the Err variables.
	Class error
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(e.Verb)
	if e.Table != "" {
		fmt.Fprintf(&s, " table %s", e.Table)
	}
	if e.Row != nil {
		fmt.Fprintf(&s, " row %x", e.Row)
	}
	if e.Region != "" {
		fmt.Fprintf(&s, " region %s", e.Region)
	}
	if e.Server != "" {
		fmt.Fprintf(&s, " on %s", e.Server)
	}
	fmt.Fprintf(&s, ": %v", e.Class)
	if e.Attempts > 1 {
		fmt.Fprintf(&s, " after %d attempts", e.Attempts)
	}
	if e.MayHaveApplied {
		s.WriteString(", may have taken effect")
	}
	if e.Err != nil && e.Err != e.Class {
		fmt.Fprintf(&s, ": %v", e.Err)
	}
	return s.String()
}

// Unwrap gives the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// MayHaveApplied reports whether the request that failed with err may have taken effect, or may yet. It is the safe
// answer, true, for an error that is none of this package.
func MayHaveApplied(err error) bool {
	if err == nil {
		return true
	}
	var e *Error
	return !errors.As(err, &e) || e.MayHaveApplied
}
