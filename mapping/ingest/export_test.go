package ingest

import (
	"context"
	"time"

	"github.com/promtsd/promtsd/mapping/journal"
)

// FlushAll flushes everything now.
func (a *Appender) FlushAll(ctx context.Context) error { return a.flushAll(ctx) }

// Abandon stops what runs in the background and leaves all else as a kill would.
func (a *Appender) Abandon() {
	a.stopWorkers()
	a.recovery.Abandon()
}

// TakeOver takes the journal of another writer over, dead or not.
func (a *Appender) TakeOver(ctx context.Context, l journal.Lease, holder journal.ID) error {
	return a.recovery.TakeOver(ctx, l, holder)
}

// SetElapsed has the Appender tell time, for which series are active, by a clock of the test's.
func (a *Appender) SetElapsed(elapsed func() time.Duration) { a.active.elapsed = elapsed }

// Activity is an activity by itself.
type Activity struct{ *activity }

// NewActivity returns one for so many series.
func NewActivity(most int) Activity { return Activity{newActivity(most, nil)} }

// Admit notes a series.
func (a Activity) Admit(tsuid string) bool { return a.admit(tsuid, a.now(), false) }
