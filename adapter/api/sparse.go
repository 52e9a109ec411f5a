package api

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// sparse is a log of the module's handlers, which write a line for each request that is no good and for each client
// that does not take its answer: of lines with one message it lets one through in tellEvery, which says how many there
// were besides.
type sparse struct {
	slog.Handler
	told *told
}

type told struct {
	mu  sync.Mutex
	was map[string]*message // by text, of which the module has some dozens
}

type message struct {
	last time.Time // of a line that went through
	more int       // lines since then
}

func newSparse(l *slog.Logger) *slog.Logger {
	return slog.New(sparse{l.Handler(), &told{was: make(map[string]*message)}})
}

func (s sparse) Handle(ctx context.Context, r slog.Record) error {
	more, ok := s.told.tell(r)
	if !ok {
		return nil
	}
	if more > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("more", more))
	}
	return s.Handler.Handle(ctx, r)
}

// tell says whether to let a line through, and how many were not since the last one.
func (t *told) tell(r slog.Record) (more int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.was[r.Message]
	if m == nil {
		t.was[r.Message] = &message{last: r.Time}
		return 0, true
	}
	if since := r.Time.Sub(m.last); since >= 0 && since < tellEvery {
		m.more++
		return 0, false
	}
	more = m.more
	*m = message{last: r.Time}
	return more, true
}

func (s sparse) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparse{s.Handler.WithAttrs(attrs), s.told}
}
func (s sparse) WithGroup(name string) slog.Handler { return sparse{s.Handler.WithGroup(name), s.told} }
