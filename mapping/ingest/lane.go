package ingest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/promtsd/promtsd/mapping"
)

// Flushes run in lanes: bucket i belongs to lane i % lanes, and the buckets of a lane are flushed one after the other.
// With salt a lane has the series of one salt bucket, or of a few, so that a region that does not answer holds up the
// lane whose rows it has, for as long as the store tries, and no other. Without salt nothing is known of where rows
// are.
const (
	unsaltedLanes = 4
	maxLanes      = 16

	failureEvery = 10 * time.Second // how often a lane tells that its flushes fail, which it tries many times a second
)

func lanesOf(s mapping.Schema) int {
	if s.SaltWidth == 0 {
		return unsaltedLanes
	}
	return min(s.SaltBuckets, maxLanes)
}

// bucketOf chooses the bucket by which a series is flushed.
func (a *Appender) bucketOf(s *series) int {
	turn := int(a.spread.Add(1))
	if a.Settings.Schema.SaltWidth == 0 {
		return turn % buckets
	}
	lane := a.Settings.Schema.Bucket([]byte(s.tsuid)) % a.lanes
	return lane + turn%(buckets/a.lanes)*a.lanes
}

// flushInTurn flushes the buckets of a lane, all of them within the hold time, and faster while memory is short.
func (a *Appender) flushInTurn(ctx context.Context, lane int) {
	f := &flusher{a: a}
	turn := max(a.Hold.Time/buckets, time.Millisecond)
	timer := time.NewTimer(turn * time.Duration(lane+1))
	defer timer.Stop()
	round := buckets / a.lanes
	failures, told := 0, time.Time{}
	for next, hurried := lane, 0; ; next = (next + a.lanes) % (round * a.lanes) {
		if !a.short() {
			hurried = 0
		}
		// A round in a hurry that brought no relief is followed by an ordinary one.
		if hurried++; hurried == 1 || hurried > round {
			select {
			case <-ctx.Done():
			case <-timer.C:
				timer.Reset(turn * time.Duration(a.lanes))
			case <-a.early:
				if hurried == 1 && a.short() {
					a.flushEarly() // the others are to hear of it, too
				}
			}
		}
		if hurried > 2*round {
			hurried = 0
		}
		if ctx.Err() != nil {
			return
		}
		switch err := f.flush(ctx, &a.buckets[next]); {
		case ctx.Err() != nil:
		case err == nil && failures > 0:
			a.Logger.Info("samples are flushed again", "failures", failures)
			failures, told = 0, time.Time{}
		case err != nil:
			if failures++; time.Since(told) > failureEvery {
				told = time.Now()
				a.Logger.Warn("samples not flushed; they stay in the journal and are tried again", "failures", failures, "err", err)
			}
		}
	}
}

// short says that memory is, so that samples are to be flushed before their time.
func (a *Appender) short() bool { return a.table.held.Load() > a.Hold.MaxMemory/2 }

// flushAll flushes every bucket; of those of a lane that cannot be flushed it tells the first error.
func (a *Appender) flushAll(ctx context.Context) error {
	errs := make([]error, a.lanes)
	var workers sync.WaitGroup
	for lane := range a.lanes {
		workers.Go(func() {
			f := &flusher{a: a}
			for i := lane; i < buckets && errs[lane] == nil; i += a.lanes {
				errs[lane] = f.flush(ctx, &a.buckets[i])
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}
