package ingest

import (
	"context"
	"sync/atomic"

	"github.com/promtsd/promtsd/mapping/journal"
)

// Retry replays an entry that is in quarantine (journal.Retry), and says how many samples of it are stored. c is that
// of an Appender on the journal road; one that runs on the store may go on.
func Retry(ctx context.Context, c Config, writer journal.ID, number uint64) (samples int, ok bool, err error) {
	a := New(c)
	var stored atomic.Int64
	r := &replayer{a: a, single: true, samples: &stored}
	ok, err = journal.Retry(ctx, a.journalConfig(1), writer, number, r)
	return int(stored.Load()), ok, err
}
