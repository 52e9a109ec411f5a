package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

const (
	// retryPause is how long a failed write of a file waits before it is tried again or the tree hears of it, since the
	// tree tries again at once and without end.
	retryPause = time.Second

	// repeatLog is how long a failure that goes on is not logged again.
	repeatLog = time.Minute
)

// health knows whether the disk still takes what the store gives it. It is the tree's logger too, because the tree
// reports what it cannot go on from as a fatal log line.
//
// The tree's answer to a log that cannot be written is to panic, in places while it holds its locks. So failures of the
// log do not reach it: where there is no room diskFS waits for some; at others it calls stop, the goroutine that met
// the failure never returns from it, and those that wait for it are told by the failed channel. What was acknowledged
// is on the disk already; the next Open finds it.
type health struct {
	log    *slog.Logger
	report func(error)   // Config.Report
	failed chan struct{} // closed by the first call of fail
	ended  chan struct{} // closed by disarm, ends the waits of pause

	mu      sync.Mutex
	armed   bool          // guarded by mu: the store is open, failures stop it
	cause   error         // guarded by mu: why failed is closed
	trees   []*treeHealth // guarded by mu
	fulls   int           // guarded by mu: writes of files that wait for room
	full    error         // guarded by mu: what the last of them met
	hung    error         // guarded by mu: the disk does not answer
	low     error         // guarded by mu: there is little room left
	stall   chan struct{} // guarded by mu: closed when writes begin to be refused, replaced when they are taken again
	corrupt int64         // guarded by mu: corruptions met
	logged  time.Time     // guarded by mu: when failed background work was logged last
}

// treeHealth is what one tree reported last; it is guarded by health.mu.
type treeHealth struct {
	flushErr error // the error of the last flush, of any kind
	stalled  error // why flushes fail, nil if they do not
	stalls   bool  // the tree holds writes back
}

func newHealth(log *slog.Logger, report func(error)) *health {
	if report == nil {
		report = func(error) {}
	}
	return &health{
		log: log, report: report, failed: make(chan struct{}), ended: make(chan struct{}), stall: make(chan struct{}),
	}
}

// arm is called when the store is open. Before, and after disarm, the tree handles errors of its log itself.
func (h *health) arm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = true
}

// disarm ends the watch and reports whether the store is whole; if not, it stays armed, because the tree is stuck.
func (h *health) disarm() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return false
	}
	h.armed = false
	close(h.ended)
	return true
}

func (h *health) isArmed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.armed
}

// fail makes the store refuse writes from now on.
func (h *health) fail(cause error) {
	h.mu.Lock()
	first := h.cause == nil
	if first {
		h.cause = cause
	}
	h.mu.Unlock()
	if first {
		h.log.Error("store stopped taking writes; mend the disk and restart", "err", cause)
		close(h.failed)
	}
}

// failure is the error of every write after fail.
func (h *health) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failureLocked()
}

func (h *health) failureLocked() error {
	return fmt.Errorf("%w: stopped after a failure that needs a restart: %w", store.ErrUnavailable, h.cause)
}

// check refuses writes that could not be kept.
func (h *health) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return h.failureLocked()
	}
	return h.blocked()
}

// writable is check for what is new: it is refused earlier, so that there is room for what the store has taken already.
func (h *health) writable() error {
	if err := h.check(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.low
}

// blocked is why writes are refused, nil if they are not. They all are, whatever tree cannot go on, since the trees
// share the disk. The caller holds mu.
func (h *health) blocked() error {
	if h.fulls > 0 {
		return errFull(h.full)
	}
	for _, t := range h.trees {
		if isFull(t.stalled) {
			return errFull(t.stalled)
		} else if t.stalled != nil {
			return fmt.Errorf("%w: tables cannot be written, which is tried again: %w", store.ErrUnavailable, t.stalled)
		}
	}
	return h.hung
}

func errFull(cause error) error {
	return fmt.Errorf("%w: the disk is full, and writes are refused until there is room: %w", store.ErrUnavailable, cause)
}

// stalling is closed when writes begin to be refused, so that those under way give up.
func (h *health) stalling() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stall
}

// change lets f change what blocked and low depend on.
func (h *health) change(f func()) {
	h.mu.Lock()
	before := h.blocked()
	f()
	after := h.blocked()
	switch {
	case before == nil && after != nil:
		close(h.stall)
	case before != nil && after == nil:
		h.stall = make(chan struct{})
	}
	if after == nil {
		after = h.low
	}
	h.mu.Unlock()
	h.report(after)
}

// beginFull notes that a write of a file waits for room, until leave is called.
func (h *health) beginFull(cause error) (leave func()) {
	begin := time.Now()
	h.log.Error("the disk is full; the store waits for room", "err", cause)
	h.change(func() { h.fulls, h.full = h.fulls+1, cause })
	return func() {
		h.change(func() { h.fulls-- })
		h.log.Info("the store waits for room no longer", "waited", time.Since(begin).Round(time.Millisecond))
	}
}

// setHung notes that the disk does not answer.
func (h *health) setHung(err error) {
	first := false
	h.change(func() { first, h.hung = h.hung == nil, err })
	if first {
		h.log.Error("writes are refused until the disk answers", "err", err)
	}
}

// clearHung notes that it does, and reports whether it did not.
func (h *health) clearHung() (was bool) {
	h.change(func() { was, h.hung = h.hung != nil, nil })
	return was
}

// setLow notes that there is little room, or, by nil, that there is enough.
func (h *health) setLow(err error) {
	h.change(func() { h.low = err })
}

// stop fails the store and never returns, if the store is armed.
func (h *health) stop(cause error) {
	if h.isArmed() {
		h.halt(cause)
	}
}

// halt fails the store and never returns.
func (h *health) halt(cause error) {
	h.fail(cause)
	select {}
}

// pause waits a little, and reports whether the store goes on after it.
func (h *health) pause() bool {
	t := time.NewTimer(retryPause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-h.ended:
		return false
	}
}

// events is what the store wants to hear from one more tree.
func (h *health) events() *lsm.EventListener {
	log, t := h.log, &treeHealth{}
	h.mu.Lock()
	h.trees = append(h.trees, t)
	h.mu.Unlock()
	return &lsm.EventListener{
		// A flush that fails ends with its error, then the same error comes as that of a background task. A flush that found
		// nothing to keep ends with an error too, but is no failure.
		FlushEnd: func(info lsm.FlushInfo) {
			h.change(func() { t.flushErr, t.stalled = info.Err, nil })
		},
		BackgroundError: func(err error) {
			if errors.Is(err, lsm.ErrCancelledCompaction) {
				return // what the reaper cut out was in the way, and the work begins again at once
			}
			flush, tell := false, false
			h.change(func() {
				if flush = err == t.flushErr; flush { // the very same value
					t.stalled = err
				}
				if tell = time.Since(h.logged) > repeatLog; tell {
					h.logged = time.Now()
				}
			})
			if tell {
				log.Warn("background work on the store failed and is tried again", "flush", flush, "err", err.Error())
			}
		},
		DataCorruption: func(info lsm.DataCorruptionInfo) {
			h.mu.Lock()
			h.corrupt++
			h.mu.Unlock()
			log.Error("store file is corrupt; restore it from a copy", "path", info.Path, "err", info.Details)
		},
		WriteStallBegin: func(info lsm.WriteStallBeginInfo) {
			h.setStalls(t, true)
			log.Warn("store holds writes back until flushes and compactions catch up", "reason", info.Reason)
		},
		WriteStallEnd: func() {
			h.setStalls(t, false)
			log.Info("store takes writes again")
		},
		DiskSlow: func(info lsm.DiskSlowInfo) {
			log.Warn("disk is slow", "op", info.OpType.String(), "path", info.Path, "duration", info.Duration)
		},
		LowDiskSpace: func(info lsm.LowDiskSpaceInfo) {
			log.Warn("disk is nearly full", "available", info.AvailBytes, "total", info.TotalBytes)
		},
		// A log that could not be made would end in a panic of the tree, with its locks held wrongly.
		WALCreated: func(info lsm.WALCreateInfo) {
			if info.Err != nil {
				h.stop(fmt.Errorf("create write-ahead log %s: %w", info.Path, info.Err))
			}
		},
	}
}

func (h *health) setStalls(t *treeHealth, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.stalls = on
}

// gauges is the state for metrics.
func (h *health) gauges() (failed, stalls bool, corruptions int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stalls = h.blocked() != nil
	for _, t := range h.trees {
		stalls = stalls || t.stalls
	}
	return h.cause != nil, stalls, h.corrupt
}

// Infof takes the tree's chatter.
func (h *health) Infof(format string, args ...any) {
	h.log.Debug(fmt.Sprintf(format, args...))
}

// Errorf takes an error that the tree survives.
func (h *health) Errorf(format string, args ...any) {
	h.log.Error(fmt.Sprintf(format, args...))
}

// Fatalf takes an error that the tree does not survive, and must not return. It ends the goroutine with its deferred
// calls, which release the tree's locks, and leaves the work it was at marked as going on, so that nothing of its kind
// starts again: the files stay as the last good record of them says. All calls of the tree that may end here run on
// goroutines of their own.
func (h *health) Fatalf(format string, args ...any) {
	fatal := &fatalError{message: fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			fatal.cause = err
		}
	}
	h.fail(fatal)
	runtime.Goexit()
}

// fatalError is a fatal log line of the tree and the error that it tells of, if any.
type fatalError struct {
	message string
	cause   error
}

func (e *fatalError) Error() string { return e.message }
func (e *fatalError) Unwrap() error { return e.cause }
