package torture_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/storetest/child"
)

// injectedFaults are what a promtsd of the build with the tag torture reads from its file (machine_faulty.go).
type injectedFaults struct {
	ClockMs            int64
	Disk, Net, NetPort string
}

// tortureNode is one promtsd under a supervisor, which starts it again when it ends. Its methods may be called by any
// goroutine.
type tortureNode struct {
	name    string
	addr    string
	front   *front
	peers   *front // of the others
	bin     string
	dir     string
	log     string
	control string
	args    func(life int) []string // of a life, counted from 0

	mu       sync.Mutex // guards what follows
	faults   injectedFaults
	run      *child.Run // nil while it is down
	wanted   bool       // it shall run
	stopping bool       // it was asked to end
	lives    int        // that have ended
	deaths   []string   // lives that ended by themselves, since the last look
	scanned  int64      // bytes of the log
	end      chan struct{}
}

const (
	restartPause  = 200 * time.Millisecond // of the supervisor
	tortureGrace  = 90 * time.Second       // for SIGTERM: two drains, and what a busy machine adds
	tortureLogEnd = 24 << 10               // bytes of a log that are shown
)

// newTortureNode makes a node that is started by wake. Its log is an artifact of the test.
func newTortureNode(t *testing.T, n int, storeURL func(dir string) string, args func(life int) []string) *tortureNode {
	t.Helper()
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	peerPort, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	name, addr := "promtsd-"+strconv.Itoa(n), net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	peerAddr := net.JoinHostPort("127.0.0.1", strconv.Itoa(peerPort))
	dir := t.TempDir()
	d := &tortureNode{
		name: name, addr: addr, front: newFront(t, addr), peers: newFront(t, peerAddr), bin: promtest.TorturablePromtsd(t),
		dir: dir,
		log: filepath.Join(t.ArtifactDir(), name+".log"), control: filepath.Join(dir, "faults"), end: make(chan struct{}),
	}
	url := storeURL(filepath.Join(dir, "data"))
	flags := []string{"serve", "--web.listen-address=" + addr, "--store.url=" + url, "--log.level=debug"}
	if !strings.HasPrefix(url, "pebble:") {
		flags = append(flags, "--peer.listen-address="+peerAddr, "--peer.advertise-address="+d.peers.listener.Addr().String())
	}
	d.args = func(life int) []string { return slices.Concat(flags, args(life)) }
	var supervisor sync.WaitGroup
	supervisor.Go(d.supervise)
	t.Cleanup(func() {
		close(d.end)
		supervisor.Wait()
		d.kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", d.name, d.logEnd())
		}
	})
	return d
}

// spoil has a fault spoil what passes through the fronts.
func (d *tortureNode) spoil(fault string) {
	d.front.fault.Store(fault)
	d.peers.fault.Store(fault)
}

// url is the base of the addresses of promtsd itself, past the front.
func (d *tortureNode) url() string { return "http://" + d.addr }

// supervise keeps the node running while it is wanted.
func (d *tortureNode) supervise() {
	for {
		d.mu.Lock()
		if d.run != nil && d.run.Ended() {
			if !d.stopping {
				d.deaths = append(d.deaths, fmt.Sprintf("%s ended by itself: %v", d.name, d.run.Err()))
			}
			d.bury()
		} else if d.run == nil && d.wanted {
			if err := d.start(); err != nil {
				d.deaths = append(d.deaths, fmt.Sprintf("%s does not start: %v", d.name, err))
			}
		}
		d.mu.Unlock()
		select {
		case <-d.end:
			return
		case <-time.After(restartPause):
		}
	}
}

// start starts a life. mu is held.
func (d *tortureNode) start() error {
	cmd := exec.Command(d.bin, d.args(d.lives)...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "PROMTSD_TORTURE="+d.control)
	run, err := child.Start(cmd, d.log)
	d.run, d.stopping = run, false
	if err != nil {
		d.run = nil
	}
	return err
}

// bury ends the account of a life. mu is held.
func (d *tortureNode) bury() {
	d.run = nil
	d.lives++
}

// kill ends the node by SIGKILL, whatever it does, and has it stay down.
func (d *tortureNode) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = false
	if d.run != nil {
		d.run.Kill()
		d.bury()
	}
}

// wake has the node run, and run on if it is frozen.
func (d *tortureNode) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = true
	if d.run == nil {
		_ = d.start() // the supervisor tries it again
	} else {
		d.run.Signal(syscall.SIGCONT)
	}
}

func (d *tortureNode) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.run != nil {
		d.run.Signal(syscall.SIGSTOP)
	}
}

// terminate asks the node to end, and waits until it has. How it ended is the error; a node that is down has ended
// well, and so has one that is killed meanwhile, or so young that it does not catch the signal yet.
func (d *tortureNode) terminate() error {
	d.mu.Lock()
	run := d.run
	d.wanted, d.stopping = false, true
	d.mu.Unlock()
	if run == nil {
		return nil
	}
	run.Signal(syscall.SIGCONT)
	err := run.Stop(tortureGrace)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == -1 { // ended by a signal
		return nil
	}
	return err
}

// inflict changes the node's faults, which counts some milliseconds later and in the lives to come.
func (d *tortureNode) inflict(change func(t *injectedFaults)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.faults)
	text, err := json.Marshal(d.faults)
	if err != nil {
		return err
	}
	// It is read at any moment, and shall be whole.
	if err := os.WriteFile(d.control+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(d.control+".new", d.control)
}

// life counts the lives that have ended.
func (d *tortureNode) life() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lives
}

var crashLine = regexp.MustCompile(`(?m)^(panic: |fatal error: |runtime: ).*|.*panic serving.*`)

// inspect tells what happened to the node since the last look: lives that ended by themselves, and crashes in its log.
func (d *tortureNode) inspect() (deaths, crashes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deaths, d.deaths = d.deaths, nil
	file, err := os.Open(d.log)
	if err != nil {
		return deaths, []string{err.Error()}
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return deaths, []string{err.Error()}
	}
	text := make([]byte, info.Size()-d.scanned)
	n, _ := file.ReadAt(text, d.scanned)
	d.scanned += int64(n)
	for _, line := range crashLine.FindAll(text[:n], 10) {
		crashes = append(crashes, d.name+": "+string(line))
	}
	return deaths, crashes
}

func (d *tortureNode) logEnd() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(len(text)-tortureLogEnd, 0):])
}

// thaw lets a frozen node run on.
func (d *tortureNode) thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.run != nil {
		d.run.Signal(syscall.SIGCONT)
	}
}
