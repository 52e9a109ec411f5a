package ingest

import (
	"context"

	"github.com/promtsd/promtsd/mapping/journal"
)

// FlushAll flushes everything now.
func (a *Appender) FlushAll(ctx context.Context) error { return a.flushAll(ctx) }

// Abandon stops what runs in the background and leaves all else as a kill would.
func (a *Appender) Abandon() {
	a.stop()
	a.stopped.Wait()
	a.stopKeeping()
	a.kept.Wait()
	a.journal.Store(nil)
}

// TakeOver takes the journal of another writer over, dead or not.
func (a *Appender) TakeOver(ctx context.Context, l journal.Lease, holder journal.ID) error {
	return a.takeOver(ctx, l, holder)
}
