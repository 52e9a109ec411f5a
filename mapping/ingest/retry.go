package ingest

import (
	"context"

	"github.com/promtsd/promtsd/mapping/journal"
)

// Retry replays an entry that is in quarantine (journal.Retry), and says how many samples of it are stored. c is that of an
// Appender on the journal road; one that runs on the store may go on.
func Retry(ctx context.Context, c Config, writer journal.ID, number uint64) (samples int, ok bool, err error) {
	a := New(c)
	r := &replayer{a: a, single: true, samples: &samples}
	ok, err = journal.Retry(ctx, a.journalConfig(1), writer, number, r)
	return samples, ok, err
}
