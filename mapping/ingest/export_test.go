package ingest

import "context"

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
