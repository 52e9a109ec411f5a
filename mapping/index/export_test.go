package index

import (
	"context"
	"time"
)

// ReadFeed reads what other processes have added.
func (m *Memory) ReadFeed(ctx context.Context) error { return m.feed.Read(ctx) }

// SweepFeed marks rows of the feed, and removes those marked two hours before.
func (m *Memory) SweepFeed(ctx context.Context, now time.Time) error { return m.feed.Sweep(ctx, now) }
