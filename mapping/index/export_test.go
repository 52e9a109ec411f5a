package index

import (
	"context"
	"time"

	"github.com/promtsd/promtsd/mapping"
)

// ReadFeed reads what other processes have added.
func (m *Memory) ReadFeed(ctx context.Context) error { return m.feed.Read(ctx) }

// SweepFeed marks rows of the feed, and removes those marked two hours before.
func (m *Memory) SweepFeed(ctx context.Context, now time.Time) error { return m.feed.Sweep(ctx, now) }

// Intersect is intersect.
func Intersect(short, long []uint32) []uint32 { return intersect(short, long) }

// FillShelf adds series to what a Memory holds, and returns that.
func FillShelf(schema mapping.Schema, series int, tsuid func(i int) []byte) any {
	s := newShelf(schema)
	s.opened = 0
	for i := range series {
		if !s.add(tsuid(i), 20_000, series) {
			panic("no room")
		}
	}
	return s
}
