package api

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestSparing_TellsTheSameNowAndThen(t *testing.T) {
	var out bytes.Buffer
	l := newSparing(slog.New(slog.NewTextHandler(&out, nil))).With("component", "x")
	at := time.Unix(1_795_000_000, 0)
	say := func(message string) {
		r := slog.NewRecord(at, slog.LevelError, message, 0)
		if err := l.Handler().Handle(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		say("bad")
		at = at.Add(15 * time.Millisecond)
	}
	say("other")
	if n := strings.Count(out.String(), "msg=bad"); n != 2 {
		t.Errorf("in 15 seconds it was told %d times, want 2:\n%s", n, out.String())
	}
	if !strings.Contains(out.String(), "not_told=66") || !strings.Contains(out.String(), "msg=other component=x\n") {
		t.Errorf("got %s", out.String())
	}
}
