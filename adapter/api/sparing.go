package api

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// sparing is a slog.Handler that tells of the same, by its message, no more than once in ten seconds, and then how often it was not told:
// the module logs a line for each request that is no good, which anyone can send.
type sparing struct {
	slog.Handler
	said *said
}

// said is what was told lately, by message.
type said struct {
	mu   sync.Mutex
	last map[string]*line
}

type line struct {
	at   time.Time
	more int // times since
}

const (
	tellAgain = 10 * time.Second
	mostSaid  = 1000 // messages that are known; there are as many as calls of a logger
)

// newSparing returns a logger that spares another.
func newSparing(l *slog.Logger) *slog.Logger {
	return slog.New(sparing{l.Handler(), &said{last: make(map[string]*line)}})
}

// Handle implements slog.Handler.
func (s sparing) Handle(ctx context.Context, r slog.Record) error {
	more, tell := s.said.tell(r)
	if !tell {
		return nil
	}
	if more > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("not_told", more))
	}
	return s.Handler.Handle(ctx, r)
}

func (s *said) tell(r slog.Record) (more int, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.last[r.Message]
	switch {
	case l == nil:
		if len(s.last) >= mostSaid {
			clear(s.last)
		}
		s.last[r.Message] = &line{at: r.Time}
		return 0, true
	case r.Time.Sub(l.at) < tellAgain:
		l.more++
		return 0, false
	}
	more, *l = l.more, line{at: r.Time}
	return more, true
}

// WithAttrs implements slog.Handler.
func (s sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparing{s.Handler.WithAttrs(attrs), s.said}
}

// WithGroup implements slog.Handler.
func (s sparing) WithGroup(name string) slog.Handler {
	return sparing{s.Handler.WithGroup(name), s.said}
}
