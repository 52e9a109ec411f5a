package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestDecide(t *testing.T) {
	server := func(class string) error {
		return &rpc.Error{Sent: true, Err: &wire.Exception{Class: "org.apache.hadoop.hbase." + class}}
	}
	broken := errors.New("connection reset by peer")
	for _, test := range []struct {
		err    error
		tried  int
		action action
		class  error
		maybe  bool
	}{
		{server("NotServingRegionException"), 1, relocate, nil, false},
		{server("exceptions.RegionOpeningException"), 1, retry, nil, false},
		{server("RegionTooBusyException"), 1, retry, nil, false},
		{server("CallQueueTooBigException"), 1, retry, nil, false},
		{server("ipc.CallTimeoutException"), 1, retry, nil, true},
		{server("MultiActionResultTooLarge"), 1, retry, nil, false},
		{server("UnknownScannerException"), 1, reopenScanner, nil, false},
		{server("exceptions.RequestTooBigException"), 1, splitBatch, ErrTooLarge, false},
		{server("TableNotFoundException"), 1, giveUp, ErrNoTable, false},
		{server("regionserver.NoSuchColumnFamilyException"), 1, giveUp, ErrNoFamily, false},
		{server("TableNotEnabledException"), 1, giveUp, ErrTableDisabled, false},
		{server("TableExistsException"), 1, giveUp, ErrTableExists, false},
		{server("security.AccessDeniedException"), 1, giveUp, ErrRejected, false},
		{server("DoNotRetryIOException"), 1, giveUp, ErrRejected, true},
		{&wire.Exception{Class: "org.apache.hadoop.hbase.DoNotRetryIOException", DoNotRetry: true,
			Message: "Cell[r/p:/1/Put/vlen=11534336/seqid=0] with size 11534370 exceeds limit of 10485760 bytes"}, 1, giveUp,
			ErrTooLarge, true},
		{server("SomethingNewException"), 1, relocate, nil, true},
		{&rpc.Error{Sent: true, Err: broken}, 1, relocate, nil, true},
		{&rpc.Error{Sent: false, Err: broken}, 1, relocate, nil, false},
		{&rpc.Error{Sent: true, Err: context.DeadlineExceeded}, 1, relocate, nil, true},
		{&rpc.Error{Sent: true, Err: rpc.ErrRefused}, 1, relocate, nil, true},
		{&rpc.Error{Sent: true, Err: rpc.ErrRefused}, 100, relocate, nil, true},
		{&lookupError{&rpc.Error{Sent: true, Err: broken}}, 1, relocate, nil, false},
		{&lookupError{fmt.Errorf("locate: %w", ErrNoTable)}, 1, giveUp, ErrNoTable, false},
		{&lookupError{ErrTableDisabled}, 1, giveUp, ErrTableDisabled, false},
		{&lookupError{server("security.AccessDeniedException")}, 1, giveUp, ErrRejected, false},
		{&lookupError{errNoRegions}, 1, relocate, nil, false},
		{errUnassigned, 1, relocate, nil, false},
		{ErrClosed, 1, giveUp, ErrClosed, false},
		{context.DeadlineExceeded, 1, retry, nil, false},
		{fmt.Errorf("scan: %w", wire.ErrMalformed), 1, relocate, nil, true},
		{fmt.Errorf("scan: %w", wire.ErrMalformed), unreadable, giveUp, ErrUnavailable, true},
	} {
		d := decide(test.err, test.tried, 0.5)
		if d.action != test.action || d.class != test.class || d.maybe != test.maybe {
			t.Errorf("%v, tried %d: got action %d, class %v, maybe %t, want %d, %v, %t",
				test.err, test.tried, d.action, d.class, d.maybe, test.action, test.class, test.maybe)
		}
		if d.reason == "" {
			t.Errorf("%v: no reason", test.err)
		}
	}
}

func TestPause_GrowsToABound(t *testing.T) {
	last := time.Duration(0)
	for tried := 1; tried < 30; tried++ {
		low, high := pause(tried, 0), pause(tried, 1)
		if low < last || high <= low || high > 4*time.Second {
			t.Errorf("pause after %d attempts is %v to %v, the one before began at %v", tried, low, high, last)
		}
		last = low
	}
}

func TestBudget_ServesInOrder(t *testing.T) {
	b := newBudget(10)
	if n, err := b.acquire(t.Context(), 100); n != 10 || err != nil {
		t.Fatalf("got %d and error %v, want all there is", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	large, small := make(chan error), make(chan error)
	go func() { _, err := b.acquire(ctx, 8); large <- err }()
	await(t, b, 1)
	go func() { _, err := b.acquire(t.Context(), 2); small <- err }()
	await(t, b, 2)
	b.release(5) // enough for the second only, who has to wait nevertheless
	select {
	case err := <-small:
		t.Fatalf("the second was served before the first (error %v)", err)
	default:
	}
	cancel()
	if err := <-large; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	if err := <-small; err != nil {
		t.Error(err)
	}
	b.release(5)
	b.release(2)
	if b.free != b.size {
		t.Errorf("%d of %d are free at the end", b.free, b.size)
	}
}

// await returns when so many wait for a part of a budget.
func await(t *testing.T, b *budget, n int) {
	t.Helper()
	for {
		b.mu.Lock()
		waiting := len(b.waiting)
		b.mu.Unlock()
		if waiting == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
