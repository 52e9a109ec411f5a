package index

import (
	"context"
	"time"

	"github.com/promtsd/promtsd/mapping"
)

// ReadNews reads what other processes have added.
func (m *Memory) ReadNews(ctx context.Context) error { return m.news.read(ctx) }

// SweepNews marks news, and removes those marked two hours before.
func (m *Memory) SweepNews(ctx context.Context, now time.Time) error { return m.news.sweep(ctx, now) }

// LearnNews adds what the value of a row of news says.
func (m *Memory) LearnNews(value []byte) { m.learnNews(value) }

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
