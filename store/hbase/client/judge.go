package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// step is what to do after a failed attempt.
type step uint8

const (
	giveUp   step = iota
	again         // the same at the same place
	relocate      // look up again where the region is (for admin calls: the master), and repeat there
	reopen        // open another scanner where this one was lost
	split         // repeat in two halves
)

// verdict is what to do about an error.
type verdict struct {
	step   step
	pause  time.Duration // before the next attempt
	class  error         // of the final error, for giveUp
	reason string        // label for metrics
	maybe  bool          // the attempt may have taken effect, or may yet
}

// lookupError marks a failure to find out where to send a request, which itself was hence not sent.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// judge says what to do about the failure of an attempt, which was the tried-th. jitter, from 0 to 1, spreads those who
// failed at the same moment. It is the only place that decides so, and depends on nothing else.
func judge(err error, tried int, jitter float64) verdict {
	var lookup *lookupError
	var exception *wire.Exception
	var call *rpc.Error
	switch {
	case errors.Is(err, ErrClosed):
		return verdict{step: giveUp, class: ErrClosed, reason: "closed"}
	case errors.As(err, &lookup):
		return judgeLookup(lookup.err, tried, jitter)
	case errors.Is(err, errUnassigned):
		return verdict{step: relocate, pause: pause(tried, jitter), reason: "no server"}
	case errors.As(err, &exception):
		return judgeException(exception, tried, jitter)
	case errors.As(err, &call):
		return judgeCall(call, tried, jitter)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// It waited for its turn to be sent.
		return verdict{step: again, pause: pause(tried, jitter), reason: "busy"}
	case errors.Is(err, wire.ErrMalformed) && tried < unreadable:
		return verdict{step: relocate, pause: pause(tried, jitter), reason: "malformed", maybe: true}
	default:
		// An answer that cannot be read, or from which it cannot be known what has happened.
		return verdict{step: giveUp, class: ErrUnavailable, reason: "malformed", maybe: true}
	}
}

// unreadable is the number of answers to one request that cannot be read after which that is not taken for an accident.
const unreadable = 3

func judgeLookup(err error, tried int, jitter float64) verdict {
	for _, class := range []error{ErrNoTable, ErrTableDisabled} {
		if errors.Is(err, class) {
			return verdict{step: giveUp, class: class, reason: "lookup"}
		}
	}
	var exception *wire.Exception
	if errors.As(err, &exception) && exception.Simple() == "AccessDeniedException" {
		return verdict{step: giveUp, class: ErrRejected, reason: "lookup"}
	}
	return verdict{step: relocate, pause: pause(tried, jitter), reason: "lookup"}
}

// judgeCall takes every end of a connection for one that may pass, also that of one which is closed before its first
// answer, again and again: it may be a server that lacks what was asked for, but also a proxy whose server restarts.
func judgeCall(err *rpc.Error, tried int, jitter float64) verdict {
	v := verdict{step: relocate, pause: pause(tried, jitter), reason: "connection", maybe: err.Sent}
	if errors.Is(err, context.DeadlineExceeded) {
		v.reason = "timeout"
	}
	return v
}

func judgeException(e *wire.Exception, tried int, jitter float64) verdict {
	v := verdict{pause: pause(tried, jitter), reason: e.Simple(), maybe: !harmless(e)}
	switch e.Remedy() {
	case wire.Fatal:
		v.step, v.class = giveUp, classOf(e)
	case wire.Relocate, wire.RelocateServer, wire.FindMaster, wire.Reconnect:
		v.step = relocate
		if tried == 1 {
			v.pause = 0 // most often the new place is known already
		}
	case wire.Backoff:
		v.step, v.pause = again, max(v.pause, e.ThrottledFor())
	case wire.BackoffOverloaded:
		v.step, v.pause = again, max(v.pause*overloadFactor, e.ThrottledFor())
	case wire.RetryNow:
		v.step = again
		if tried <= quickRetries {
			v.pause = 0
		}
	case wire.ReopenScanner:
		v.step = reopen
		if tried == 1 {
			v.pause = 0
		}
	case wire.SplitBatch:
		v.step, v.class, v.pause = split, ErrTooLarge, 0
	}
	return v
}

const (
	overloadFactor = 5
	// quickRetries is how often a request is repeated at once because its answer was cut, before that gets pauses too.
	quickRetries = 16
)

// harmless reports whether the server says by its exception that it has not touched the request.
func harmless(e *wire.Exception) bool {
	switch e.Simple() {
	case "CallTimeoutException", "TimeoutIOException", "FailedSyncBeforeLogCloseException", "DoNotRetryIOException",
		"RegionServerAbortedException", "CoprocessorException", "RegionServerStoppedException":
		return false
	}
	switch e.Remedy() {
	case wire.Fatal, wire.Relocate:
		// Those of the table are checks that come first; any other may have come from deep within.
		return knownCheck(e.Simple())
	default:
		return true
	}
}

func knownCheck(class string) bool {
	switch class {
	case "NotServingRegionException", "RegionMovedException", "WrongRegionException", "UnknownRegionException",
		"RegionOfflineException", "ServerNotRunningYetException", "TableNotFoundException", "TableNotEnabledException",
		"TableNotDisabledException", "TableExistsException", "NoSuchColumnFamilyException", "AccessDeniedException",
		"FailedSanityCheckException", "InvalidFamilyOperationException", "QuotaExceededException",
		"SpaceLimitingException", "WrongRowIOException", "DeserializationException", "IllegalArgumentException",
		"NamespaceNotFoundException", "UnknownProtocolException", "UnsupportedCompressionCodecException",
		"UnsupportedCellCodecException":
		return true
	default:
		return false
	}
}

// classOf is what a caller can do about an exception that repeating does not help against.
func classOf(e *wire.Exception) error {
	switch e.Simple() {
	case "TableNotFoundException":
		return ErrNoTable
	case "NoSuchColumnFamilyException":
		return ErrNoFamily
	case "TableNotEnabledException":
		return ErrTableDisabled
	case "TableExistsException":
		return ErrTableExists
	}
	// Such is the text of a cell beyond hbase.server.keyvalue.maxsize, which has no class of its own.
	if e.Simple() == "DoNotRetryIOException" && strings.Contains(e.Message, " with size ") && strings.Contains(e.Message, " exceeds limit of ") {
		return ErrTooLarge
	}
	return ErrRejected
}

// pause is how long to wait after the tried-th attempt: short at first, because most regions are back in half a second.
func pause(tried int, jitter float64) time.Duration {
	steps := [...]time.Duration{5, 20, 50, 100, 200, 400, 800, 1500, 2500}
	base := steps[min(max(tried, 1), len(steps))-1] * time.Millisecond
	return base*3/4 + time.Duration(jitter*float64(base)/2)
}
