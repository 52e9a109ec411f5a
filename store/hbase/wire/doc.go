// Package wire is the bytes of HBase's native protocol: frames, the protobuf messages a client needs, cells, the
// payloads found in ZooKeeper, and the table that says what each of the server's exceptions asks of a client. It is
// pure: it knows no sockets, contexts, clocks or retries, and keeps no state.
//
// Messages. A message is a struct. AppendTo appends its encoding to dst and returns the longer slice; Parse fills the
// struct from the bytes of exactly one message. Both directions exist where a server in a test needs the other one. A
// message that is built in parts, because it is large and the write path must not allocate for it, has functions
// instead (see MutationBatch and AppendRegionActionHeader). Fields unknown to this package are skipped.
//
// Ownership. A []byte in a parsed message points into the bytes that were parsed, a string is a copy. Encoders copy
// what they are given.
//
// Errors. Every decoder takes arbitrary bytes: it checks each length before it slices, never panics, and never
// allocates more than a small multiple of what it was given. Its errors name the message and the field.
//
// The field numbers are those of HBase 2.6.4. Older servers skip what they do not know; a client tells their answers by
// what is absent.
package wire
