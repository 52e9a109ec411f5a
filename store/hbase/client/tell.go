package client

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// teller logs that HBase takes long, and why: a line now and then for the whole client, however many wait.
type teller struct {
	logger *slog.Logger
	began  time.Time
	next   atomic.Int64 // when the next line may come, as a duration since began
}

const (
	tellAfter = time.Second
	tellEvery = 5 * time.Second
)

// errSilent stands for a reason while there is none yet.
var errSilent = errors.New("no answer yet")

// tell says that something was begun at a time and is not done yet, because of err.
func (t *teller) tell(verb, table string, since time.Time, err error) {
	waited := time.Since(since)
	now, next := int64(time.Since(t.began)), t.next.Load()
	if waited < tellAfter || now < next || !t.next.CompareAndSwap(next, now+int64(tellEvery)) {
		return
	}
	t.logger.Warn("HBase has not done yet what it was asked, and is asked again", "verb", verb, "table", table,
		"waited", waited.Round(100*time.Millisecond), "err", err)
}
