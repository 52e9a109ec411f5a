package ingest_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/promtsd/promtsd/store"
)

// spy notes the tables of the mutations of each batch.
type spy struct {
	store.Store
	seen []string // one entry a batch
}

func (s *spy) Apply(ctx context.Context, b *store.Batch) error {
	var tables []string
	for i := range b.Len() {
		tables = append(tables, b.At(i).Table)
	}
	s.seen = append(s.seen, strings.Join(tables, " "))
	return s.Store.Apply(ctx, b)
}

// discard forgets what it is given, to measure what comes before.
type discard struct{ store.Store }

func (discard) Apply(context.Context, *store.Batch) error { return nil }

// sick is a store that refuses writes while it is ill, as one with a full disk does.
type sick struct {
	store.Store
	ill atomic.Bool
}

func (s *sick) Apply(ctx context.Context, b *store.Batch) error {
	if s.ill.Load() {
		return fmt.Errorf("%w: the disk is full", store.ErrUnavailable)
	}
	return s.Store.Apply(ctx, b)
}

func (s *sick) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	if s.ill.Load() {
		return nil, fmt.Errorf("%w: the disk is full", store.ErrUnavailable)
	}
	return s.Store.CheckAndPut(ctx, checks)
}

// worn is a store of which some rows of the data table cannot be read any more.
type worn struct {
	store.Store
	rows map[string]bool
}

func (s *worn) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	for i, row := range g.Rows {
		if g.Table == "tsdb" && s.rows[string(row)] {
			g.Rows = g.Rows[:i]
			return func(yield func(store.Row, error) bool) {
				for row, err := range s.Store.Get(ctx, g) {
					if !yield(row, err) {
						return
					}
				}
				yield(store.Row{}, fmt.Errorf("%w: checksum mismatch", store.ErrCorrupt))
			}
		}
	}
	return s.Store.Get(ctx, g)
}

// spyOnApply calls a function before each batch.
type spyOnApply struct {
	store.Store
	before func()
}

func (s *spyOnApply) Apply(ctx context.Context, b *store.Batch) error {
	if s.before != nil {
		s.before()
	}
	return s.Store.Apply(ctx, b)
}
