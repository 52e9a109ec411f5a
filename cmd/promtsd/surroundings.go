package main

import (
	"context"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// surroundings are what the stores and the write path take from the machine. What is nil is the system's own. A build
// with the tag torture takes faults into them from a file (surroundings_torture.go).
type surroundings struct {
	now  func() time.Time
	disk vfs.FS
	dial func(ctx context.Context, network, addr string) (net.Conn, error) // of connections to HBase
}
