package rpc

import (
	"errors"
	"fmt"
)

// ErrClosed marks a call on a connection that was closed by Close.
var ErrClosed = errors.New("connection is closed")

// ErrRefused marks a connection that the server closed without any answer to its first request. HBase does so without a
// word when it does not know the service, the cell block codec or the compressor of the connection header.
var ErrRefused = errors.New("server closed the connection before its first answer: it may be no HBase server, " +
	"want TLS, or lack the service, the cell block codec or the compressor that was asked for")

// ErrNotHBase marks a connection to something that speaks, but not as HBase does.
var ErrNotHBase = errors.New("not an HBase server")

// Error is why a call, or a Dial, has no result. It wraps the cause: a *wire.Exception when the server answered with
// one, an error of the context, or what broke the connection.
type Error struct {
	Addr   string // of the server
	Method string // of the call; "dial" for Dial
	// Sent is true when the server may have received the whole request, and hence may have acted, or may yet act, on
	// it.
	Sent bool
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Method == methodDial {
		return fmt.Sprintf("dial %s: %v", e.Addr, e.Err)
	}
	return fmt.Sprintf("call %s of %s: %v", e.Method, e.Addr, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// methodDial is what stands for a method in the errors of Dial; methods of HBase's services have no such name.
const methodDial = "dial"

// Sent reports whether err leaves the possibility that the request took effect: false only when it is known that the
// server never had the whole request. For an error that is none of this package it is true, the safe answer.
func Sent(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.Sent
}
