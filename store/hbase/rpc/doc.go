// Package rpc is one connection to one service of one HBase server: dial, handshake, and any number of calls in flight.
// It knows no regions and never repeats a call; what it gives to those who do is that every error tells whether the
// request can have reached the server (see Sent).
//
// One goroutine writes: it sends all requests that are queued with one gathering write, without copying the pieces
// they consist of. One goroutine reads: it hands each response, in a pooled buffer, to the call with its id. Responses
// come in any order, and requests in flight together may take effect in any order.
package rpc
