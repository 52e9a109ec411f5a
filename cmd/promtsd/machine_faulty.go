//go:build torture

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// newMachine puts the faults that stand in the file PROMTSD_TORTURE between promtsd and the machine. The file is
// looked at all the time: it may be replaced while promtsd runs, and counts at its start.
func newMachine() machine {
	p := &injector{file: os.Getenv("PROMTSD_TORTURE")}
	return machine{now: p.now, disk: &faultyFS{FS: vfs.Default, injector: p}, dial: p.dial}
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
	netJunk   = "junk"   // frames that mean nothing come between others, now and then
	netLost   = "lost"   // frames do not come, now and then
)

// dropEvery is how often old samples are looked for.
const dropEvery = time.Second

// injector injects faults. The zero value injects none.
type injector struct {
	file string

	mu   sync.Mutex
	read time.Time // when the file was last looked at
	last injectedFaults
}

// injectedFaults are what the file holds, as JSON.
type injectedFaults struct {
	ClockMs   int64 // ahead of the machine's clock
	Disk, Net string
	NetPort   string // of the servers that Net is about; empty: all
}

// net is the fault of connections to an address.
func (t injectedFaults) net(addr string) string {
	if t.NetPort != "" && !strings.HasSuffix(addr, ":"+t.NetPort) {
		return ""
	}
	return t.Net
}

func (p *injector) look() injectedFaults {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.read) > 5*time.Millisecond {
		var now injectedFaults
		if text, err := os.ReadFile(p.file); err == nil && json.Unmarshal(text, &now) == nil {
			p.last = now
		}
		p.read = time.Now()
	}
	return p.last
}

func (p *injector) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(p.look().ClockMs) * time.Millisecond)
}

// pass waits while something is hung.
func (p *injector) pass(hung func(injectedFaults) bool) injectedFaults {
	for {
		t := p.look()
		if !hung(t) {
			return t
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// write is asked before each write to the disk, and sync before each sync.
func (p *injector) write() error {
	t := p.pass(func(t injectedFaults) bool { return t.Disk == diskHung })
	switch t.Disk {
	case diskFull:
		return syscall.ENOSPC
	case diskSlow:
		time.Sleep(rand.N(50 * time.Millisecond))
	}
	return nil
}

func (p *injector) sync() error {
	if p.look().Disk == diskFails {
		return syscall.EIO
	}
	return p.write()
}

// faultyFS is a disk that loses what was not synced when promtsd is killed, as a power failure does: until then it is
// in promtsd's own memory.
type faultyFS struct {
	vfs.FS
	injector *injector
}

func (f *faultyFS) Unwrap() vfs.FS { return f.FS }

func (f *faultyFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, injector: f.injector}, nil
}

func (f *faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.injector.pass(func(t injectedFaults) bool { return t.Disk == diskHung })
	return f.wrap(f.FS.Create(name, c))
}

func (f *faultyFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(f.FS.ReuseForWrite(from, to, c))
}

func (f *faultyFS) OpenDir(name string) (vfs.File, error) { return f.wrap(f.FS.OpenDir(name)) }

type faultyFile struct {
	vfs.File
	injector *injector
	unsynced bytes.Buffer
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.injector.write(); err != nil {
		return 0, err
	}
	return f.unsynced.Write(p)
}

func (f *faultyFile) flush() error {
	if err := f.injector.sync(); err != nil {
		return err
	}
	_, err := f.unsynced.WriteTo(f.File)
	return err
}

func (f *faultyFile) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) SyncData() error { return f.Sync() }

// SyncTo promises nothing, and does nothing.
func (f *faultyFile) SyncTo(int64) (bool, error) { return false, nil }

func (f *faultyFile) Close() error {
	_, err := f.unsynced.WriteTo(f.File) // may be read before it is synced
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (p *injector) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if p.look().net(addr) == netHung {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: conn, injector: p, addr: addr}, nil
}

// faultyConn is a connection that may be cut, or go silent for good. HBase's servers and ZooKeeper's answer in frames,
// each with its length in four bytes before it, of which some may be lost, and others come that nobody has sent.
type faultyConn struct {
	net.Conn
	injector *injector
	addr     string
	silent   atomic.Bool

	// What follows is for the one who reads.
	head    []byte // of the next frame, as far as it has come
	ready   []byte // to be read before the rest of the frame
	left    int    // bytes of the frame that have not come yet
	leaveIt bool   // the frame is lost
}

// pass says how many of n bytes get through; an error ends the connection.
func (c *faultyConn) pass(n int) (int, error) {
	switch net := c.injector.look().net(c.addr); {
	case net == netClosed:
		return 0, io.EOF
	case net == netCut && rand.IntN(50) == 0:
		return rand.IntN(n + 1), syscall.ECONNRESET
	case net == netHung:
		c.silent.Store(true)
	}
	return n, nil
}

func (c *faultyConn) Read(p []byte) (int, error) {
	for {
		n, err := c.readFrames(p)
		if err != nil {
			return n, err
		}
		if n, err = c.pass(n); err != nil {
			c.Close()
		}
		if err != nil || n > 0 && !c.silent.Load() {
			return n, err
		}
	}
}

// readFrames reads what comes next, which may be nothing yet.
func (c *faultyConn) readFrames(p []byte) (n int, err error) {
	switch {
	case len(c.ready) > 0:
		n = copy(p, c.ready)
		c.ready = c.ready[n:]
		return n, nil
	case c.left > 0:
		n, err = c.Conn.Read(p[:min(len(p), c.left)])
		c.left -= n
		if c.leaveIt {
			n = 0
		}
		return n, err
	}
	var head [4]byte
	n, err = c.Conn.Read(head[:len(head)-len(c.head)])
	if c.head = append(c.head, head[:n]...); len(c.head) == len(head) {
		c.begin()
	}
	return 0, err
}

// begin decides on the frame whose length has come.
func (c *faultyConn) begin() {
	c.ready, c.left, c.leaveIt = c.head, int(binary.BigEndian.Uint32(c.head)), false
	c.head = nil
	if rand.IntN(20) > 0 {
		return
	}
	switch c.injector.look().net(c.addr) {
	case netLost:
		c.ready, c.leaveIt = nil, true
	case netJunk:
		c.ready = append(junk(), c.ready...)
	}
}

// junk is a frame of bytes that mean nothing, or only the beginning of one that is very long.
func junk() []byte {
	n := rand.IntN(300)
	frame := binary.BigEndian.AppendUint32(nil, uint32(n))
	for range n {
		frame = append(frame, byte(rand.IntN(256)))
	}
	if rand.IntN(4) == 0 {
		frame[rand.IntN(2)] = byte(rand.IntN(256))
	}
	return frame
}

func (c *faultyConn) Write(p []byte) (int, error) {
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
