package ingest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// stuck is a store that takes no batches with data while it is stuck, as long as their contexts last.
type stuck struct {
	store.Store
	on atomic.Bool
}

func (s *stuck) Apply(ctx context.Context, b *store.Batch) error {
	for i := range b.Len() {
		if b.At(i).Table == "tsdb" && s.on.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return s.Store.Apply(ctx, b)
}

// Who cannot store all in time ends in time, and another takes its journal over at once, not after the lease's term.
func TestClose_LeavesTheJournalToOthersInTime(t *testing.T) {
	st := &stuck{Store: storetest.NewMem()}
	cluster := func(c *ingest.Config) {
		c.Buffer = ingest.Buffer{FlushInterval: time.Hour, MaxBytes: 1 << 30, LeaseTTL: time.Hour}
	}
	first := open(t, st, nil, cluster)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		first.append(t, raw("__name__", "m", "s", fmt.Sprint(i)), sample(now-1, float64(i)))
	}
	st.on.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := first.Close(ctx); err != nil {
		t.Fatalf("Close: %v, want none: what is not stored is in the journal", err)
	}
	st.on.Store(false)

	second := open(t, st, nil, cluster)
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Minute) // far below the term
	defer cancel()
	if err := second.Start(ctx); err != nil {
		t.Fatalf("the next does not start: %v", err)
	}
	if got := second.all(t); len(got) != 100 {
		t.Errorf("%d series are there, want 100", len(got))
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A replay says how far it is.
func TestStart_SaysHowFarAReplayIs(t *testing.T) {
	const entries = 70
	st := storetest.NewMem()
	first := open(t, st, nil, buffered)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		first.append(t, raw("__name__", "m", "s", fmt.Sprint(i)), sample(now-1, 1))
	}
	first.Abandon()

	var second *database
	var said atomic.Value
	second = open(t, st, nil, func(c *ingest.Config) {
		buffered(c)
		c.Apply = func(ctx context.Context, b *store.Batch) error {
			said.Store(second.Replaying())
			return st.Apply(ctx, b)
		}
	})
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, _ := said.Load().(string); !strings.Contains(text, fmt.Sprintf(" of %d entries", entries)) {
		t.Errorf("while it replays it says %q, want how many of %d entries", text, entries)
	}
	if said := second.Replaying(); said != "" {
		t.Errorf("when it has replayed it says %q", said)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
