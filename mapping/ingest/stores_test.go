package ingest_test

import (
	"context"
	"strings"

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
