package index

import "context"

// ReadNews reads what other processes have added.
func (m *Memory) ReadNews(ctx context.Context) error { return m.news.read(ctx) }

// SweepNews removes news of before a time.
func (m *Memory) SweepNews(ctx context.Context, before int64) error { return m.news.sweep(ctx, before) }

// LearnNews adds what the value of a row of news says.
func (m *Memory) LearnNews(value []byte) { m.learnNews(value) }

// Intersect is intersect.
func Intersect(short, long []uint32) []uint32 { return intersect(short, long) }
