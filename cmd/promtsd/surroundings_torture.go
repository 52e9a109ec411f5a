//go:build torture

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// newSurroundings puts the faults that stand in the file PROMTSD_TORTURE between promtsd and the machine. The file is
// looked at all the time: it may be replaced while promtsd runs, and counts at its start.
func newSurroundings() surroundings {
	p := &plague{file: os.Getenv("PROMTSD_TORTURE")}
	return surroundings{now: p.now, disk: &plaguedFS{FS: vfs.Default, plague: p}, dial: p.dial}
}

// The faults of a disk and of a network.
const (
	diskFull  = "full"  // writes fail by ENOSPC
	diskSlow  = "slow"  // writes and syncs take up to 50 ms
	diskHung  = "hung"  // writes and syncs do not return while it lasts
	diskFails = "fails" // syncs fail by EIO

	netCut    = "cut"    // connections end, now and then, in the middle of a read or write
	netClosed = "closed" // connections are accepted and closed
	netHung   = "hung"   // connections go silent for good, and none is made
)

// plague is what ails the machine. The zero value ails nothing.
type plague struct {
	file string

	mu   sync.Mutex
	read time.Time // when the file was last looked at
	last torment
}

// torment is what the file holds, as JSON.
type torment struct {
	ClockMs   int64 // ahead of the machine's clock
	Disk, Net string
}

func (p *plague) look() torment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.read) > 5*time.Millisecond {
		var now torment
		if text, err := os.ReadFile(p.file); err == nil && json.Unmarshal(text, &now) == nil {
			p.last = now
		}
		p.read = time.Now()
	}
	return p.last
}

func (p *plague) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(p.look().ClockMs) * time.Millisecond)
}

// pass waits while something is hung.
func (p *plague) pass(hung func(torment) bool) torment {
	for {
		t := p.look()
		if !hung(t) {
			return t
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// write is asked before each write to the disk, and sync before each sync.
func (p *plague) write() error {
	t := p.pass(func(t torment) bool { return t.Disk == diskHung })
	switch t.Disk {
	case diskFull:
		return syscall.ENOSPC
	case diskSlow:
		time.Sleep(rand.N(50 * time.Millisecond))
	}
	return nil
}

func (p *plague) sync() error {
	if p.look().Disk == diskFails {
		return syscall.EIO
	}
	return p.write()
}

// plaguedFS is a disk that loses what was not synced when promtsd is killed, as a power failure does: until then it is
// in promtsd's own memory.
type plaguedFS struct {
	vfs.FS
	plague *plague
}

func (f *plaguedFS) Unwrap() vfs.FS { return f.FS }

func (f *plaguedFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &plaguedFile{File: file, plague: f.plague}, nil
}

func (f *plaguedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.plague.pass(func(t torment) bool { return t.Disk == diskHung })
	return f.wrap(f.FS.Create(name, c))
}

func (f *plaguedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(f.FS.ReuseForWrite(from, to, c))
}

func (f *plaguedFS) OpenDir(name string) (vfs.File, error) { return f.wrap(f.FS.OpenDir(name)) }

type plaguedFile struct {
	vfs.File
	plague   *plague
	unsynced bytes.Buffer
}

func (f *plaguedFile) Write(p []byte) (int, error) {
	if err := f.plague.write(); err != nil {
		return 0, err
	}
	return f.unsynced.Write(p)
}

func (f *plaguedFile) flush() error {
	if err := f.plague.sync(); err != nil {
		return err
	}
	_, err := f.unsynced.WriteTo(f.File)
	return err
}

func (f *plaguedFile) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *plaguedFile) SyncData() error { return f.Sync() }

// SyncTo promises nothing, and does nothing.
func (f *plaguedFile) SyncTo(int64) (bool, error) { return false, nil }

func (f *plaguedFile) Close() error {
	_, err := f.unsynced.WriteTo(f.File) // may be read before it is synced
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (p *plague) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if p.look().Net == netHung {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &plaguedConn{Conn: conn, plague: p}, nil
}

// plaguedConn is a connection that may be cut, or go silent for good.
type plaguedConn struct {
	net.Conn
	plague *plague
	silent atomic.Bool
}

// pass says how many of n bytes get through; an error ends the connection.
func (c *plaguedConn) pass(n int) (int, error) {
	switch net := c.plague.look().Net; {
	case net == netClosed:
		return 0, io.EOF
	case net == netCut && rand.IntN(50) == 0:
		return rand.IntN(n + 1), syscall.ECONNRESET
	case net == netHung:
		c.silent.Store(true)
	}
	return n, nil
}

func (c *plaguedConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil {
			return n, err
		}
		if n, err = c.pass(n); err != nil {
			c.Close()
		}
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

func (c *plaguedConn) Write(p []byte) (int, error) {
	part, cut := c.pass(len(p))
	if c.silent.Load() {
		return len(p), nil
	}
	n, err := c.Conn.Write(p[:part])
	if cut != nil {
		c.Close()
		return n, cut
	}
	return n, err
}
