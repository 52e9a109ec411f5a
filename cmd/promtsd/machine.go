package main

import (
	"context"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// machine is what the stores and the write path take of the machine that they run on. What is nil is the system's own.
// A build with the tag torture takes faults into them from a file (machine_faulty.go).
type machine struct {
	now  func() time.Time
	disk vfs.FS
	dial func(ctx context.Context, network, addr string) (net.Conn, error) // of connections to HBase
}
