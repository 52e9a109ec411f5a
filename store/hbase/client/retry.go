package client

import (
	"context"
	"errors"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// action is what to do after a failed attempt.
type action uint8

const (
	giveUp        action = iota
	retry                // the same at the same place
	relocate             // look up again where the region is (for admin calls: the master), and repeat there
	reopenScanner        // open another scanner behind the last row that came whole
	splitBatch           // repeat in two halves
)

// decision is what to do about an error.
type decision struct {
	action action
	pause  time.Duration // before the next attempt
	class  error         // of the final error, for giveUp and splitBatch
	reason string        // label for metrics
	maybe  bool          // the attempt may have taken effect, or may yet
}

// lookupError marks a failure to find out where to send a request, which itself was hence not sent.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// decide says what to do about the failure of an attempt, which was the tried-th. jitter, from 0 to 1, spreads those
// who failed at the same moment. It is the only place that decides so, and depends on nothing else.
func decide(err error, tried int, jitter float64) decision {
	var lookup *lookupError
	var exception *wire.Exception
	var call *rpc.Error
	switch {
	case errors.Is(err, ErrClosed):
		return decision{action: giveUp, class: ErrClosed, reason: "closed"}
	case errors.As(err, &lookup):
		return decideLookup(lookup.err, tried, jitter)
	case errors.Is(err, errUnassigned):
		return decision{action: relocate, pause: pause(tried, jitter), reason: "no server"}
	case errors.As(err, &exception):
		return decideException(exception, tried, jitter)
	case errors.As(err, &call):
		return decideCall(call, tried, jitter)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// It waited for its turn to be sent.
		return decision{action: retry, pause: pause(tried, jitter), reason: "busy"}
	case errors.Is(err, wire.ErrMalformed) && tried < unreadable:
		return decision{action: relocate, pause: pause(tried, jitter), reason: "malformed", maybe: true}
	default:
		// An answer that cannot be read, or from which it cannot be known what has happened.
		return decision{action: giveUp, class: ErrUnavailable, reason: "malformed", maybe: true}
	}
}

// unreadable is the number of answers to one request that cannot be read after which that is not taken for an accident.
const unreadable = 3

func decideLookup(err error, tried int, jitter float64) decision {
	for _, class := range []error{ErrNoTable, ErrTableDisabled} {
		if errors.Is(err, class) {
			return decision{action: giveUp, class: class, reason: "lookup"}
		}
	}
	var exception *wire.Exception
	if errors.As(err, &exception) && policyOf(exception).forbidden {
		return decision{action: giveUp, class: ErrRejected, reason: "lookup"}
	}
	return decision{action: relocate, pause: pause(tried, jitter), reason: "lookup"}
}

// decideCall takes every end of a connection for one that may pass, also that of one which is closed before its first
// answer, again and again: it may be a server that lacks what was asked for, but also a proxy whose server restarts.
func decideCall(err *rpc.Error, tried int, jitter float64) decision {
	d := decision{action: relocate, pause: pause(tried, jitter), reason: "connection", maybe: err.Sent}
	if errors.Is(err, context.DeadlineExceeded) {
		d.reason = "timeout"
	}
	return d
}

func decideException(e *wire.Exception, tried int, jitter float64) decision {
	policy := policyOf(e)
	d := decision{action: policy.action, pause: pause(tried, jitter), class: policy.err, reason: e.Simple(),
		maybe: !policy.untouched}
	if policy.overloaded {
		d.pause *= overloadFactor
	}
	d.pause = max(d.pause, e.ThrottledFor())
	if policy.action == splitBatch || tried <= policy.atOnce {
		d.pause = 0
	}
	return d
}

// overloadFactor makes pauses longer for a server that has too much to do.
const overloadFactor = 5

// pause is how long to wait after the tried-th attempt: short at first, because most regions are back in half a second.
func pause(tried int, jitter float64) time.Duration {
	steps := [...]time.Duration{5, 20, 50, 100, 200, 400, 800, 1500, 2500}
	base := steps[min(max(tried, 1), len(steps))-1] * time.Millisecond
	return base*3/4 + time.Duration(jitter*float64(base)/2)
}
