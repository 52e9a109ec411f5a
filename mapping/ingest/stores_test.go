package ingest_test

import (
	"context"
	"fmt"
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
