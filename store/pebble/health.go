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

// flushRetry is how long a failed write of a table file waits before the tree hears of it, since the tree tries again
// at once and without end.
const flushRetry = time.Second

// health knows whether the disk still takes what the store gives it. It is the tree's logger too, because the tree
// reports what it cannot go on from as a fatal log line.
//
// The tree's answer to a log that cannot be written is to panic, in places while it holds its locks. So failures of the
// log do not reach it: failStopFS calls stop, the goroutine that met the failure never returns from it, and those that
// wait for it are told by the failed channel. What was acknowledged is on the disk already; the next Open finds it.
type health struct {
	log    *slog.Logger
	failed chan struct{} // closed by the first call of fail
	ended  chan struct{} // closed by disarm, ends the waits of retryLater

	mu      sync.Mutex
	armed   bool          // guarded by mu: the store is open, failures stop it
	cause   error         // guarded by mu: why failed is closed
	trees   []*treeHealth // guarded by mu
	stall   chan struct{} // guarded by mu: closed when flushes of a tree begin to fail, replaced when those of all succeed
	corrupt int64         // guarded by mu: corruptions met
}

// treeHealth is what one tree reported last; it is guarded by health.mu.
type treeHealth struct {
	flushErr error // the error of the last flush, of any kind
	stalled  error // why flushes fail, nil if they do not
	stalls   bool  // the tree holds writes back
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, failed: make(chan struct{}), ended: make(chan struct{}), stall: make(chan struct{})}
}

// arm is called when the store is open. Before, and after disarm, the tree handles errors itself.
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
		close(h.failed)
	}
	h.mu.Unlock()
	if !first {
		return
	}
	h.log.Error("store stopped taking writes; mend the disk and restart", "err", cause)
}

// failure is the error of every write after fail.
func (h *health) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Errorf("%w: stopped after a failure that needs a restart: %w", store.ErrUnavailable, h.cause)
}

// check refuses writes that could not be kept.
func (h *health) check() error {
	select {
	case <-h.failed:
		return h.failure()
	default:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if cause := h.stalled(); cause != nil {
		return fmt.Errorf("%w: cannot write tables to disk (is it full?), trying again: %w", store.ErrUnavailable, cause)
	}
	return nil
}

// stalled is why flushes of a tree fail, nil if none do. All writes are refused then, since the trees share the disk.
// The caller holds mu.
func (h *health) stalled() error {
	for _, t := range h.trees {
		if t.stalled != nil {
			return t.stalled
		}
	}
	return nil
}

// stalling is closed when flushes begin to fail, so that writes that wait for one give up.
func (h *health) stalling() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stall
}

// setStalled takes why flushes of a tree fail, or nil. The caller holds mu.
func (h *health) setStalled(t *treeHealth, cause error) {
	before := h.stalled()
	t.stalled = cause
	switch after := h.stalled(); {
	case before == nil && after != nil:
		close(h.stall)
	case before != nil && after == nil:
		h.stall = make(chan struct{})
	}
}

// stop fails the store and never returns, if the store is armed.
func (h *health) stop(cause error) {
	if !h.isArmed() {
		return
	}
	h.fail(cause)
	select {}
}

// retryLater waits a little, if the store is armed.
func (h *health) retryLater() {
	if !h.isArmed() {
		return
	}
	t := time.NewTimer(flushRetry)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.ended:
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
			h.mu.Lock()
			defer h.mu.Unlock()
			t.flushErr = info.Err
			h.setStalled(t, nil)
		},
		BackgroundError: func(err error) {
			if errors.Is(err, lsm.ErrCancelledCompaction) {
				return // what the reaper cut out was in the way, and the work begins again at once
			}
			h.mu.Lock()
			flush := err == t.flushErr // the very same value
			if flush {
				h.setStalled(t, err)
			}
			h.mu.Unlock()
			log.Error("background work on the store failed and is tried again", "flush", flush, "err", err.Error())
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
	for _, t := range h.trees {
		stalls = stalls || t.stalls || t.stalled != nil
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
