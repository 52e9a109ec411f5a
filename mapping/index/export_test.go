package index

import (
	"context"
	"time"
)

// ReadNews reads what other processes have added.
func (m *Memory) ReadNews(ctx context.Context) error { return m.news.read(ctx) }

// SweepNews marks news, and removes those marked two hours before.
func (m *Memory) SweepNews(ctx context.Context, now time.Time) error { return m.news.sweep(ctx, now) }

// LearnNews adds what the value of a row of news says.
func (m *Memory) LearnNews(value []byte) { m.learnNews(value) }

// Intersect is intersect.
func Intersect(short, long []uint32) []uint32 { return intersect(short, long) }
