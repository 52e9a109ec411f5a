package hbase

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Apply implements store.Store. It sorts the batch by rows, stably: what belongs to one row takes effect together, and
// costs the servers least.
func (s *Store) Apply(ctx context.Context, b *store.Batch) error {
	if err := b.Err(); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	order := sorted(b)
	now := s.now()
	var errs []error
	for len(order) > 0 {
		table := b.At(order[0]).Table
		end := 1
		for end < len(order) && b.At(order[end]).Table == table {
			end++
		}
		errs = append(errs, s.applyTable(ctx, b, table, order[:end], now))
		order = order[end:]
	}
	return errors.Join(errs...)
}

// sorted returns the order in which the mutations are sent.
func sorted(b *store.Batch) []int {
	order := make([]int, b.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		x, y := b.At(i), b.At(j)
		return cmp.Or(cmp.Compare(x.Table, y.Table), bytes.Compare(x.Row, y.Row))
	})
	return order
}

func (s *Store) applyTable(ctx context.Context, b *store.Batch, table string, order []int, now int64) error {
	out, err := s.client.NewBatch(ctx, table)
	if err != nil {
		return classify(ctx, err)
	}
	for _, i := range order {
		m := b.At(i)
		if m.Timestamp == 0 {
			m.Timestamp = now
		}
		if m.Delete {
			out.Delete(m.Row, string(m.Family), m.Qualifier, m.Timestamp)
		} else {
			out.Put(m.Row, string(m.Family), m.Qualifier, m.Timestamp, m.Value)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("apply %d mutations of table %q: %w", len(order), table, classify(ctx, err))
	}
	return nil
}

// Increment implements store.Store.
func (s *Store) Increment(ctx context.Context, c store.Coord, delta int64) (int64, error) {
	if err := s.ready(ctx, c); err != nil {
		return 0, err
	}
	sum, err := s.client.Increment(ctx, client.Coord(c), delta)
	if e, ok := errors.AsType[*wire.Exception](err); ok && strings.Contains(e.Message, "not a long") {
		return 0, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return sum, classify(ctx, err)
}

// CheckAndPut implements store.Store.
func (s *Store) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	out := make([]client.Check, len(checks))
	for i, c := range checks {
		if err := c.Check(); err != nil {
			return nil, err
		}
		if err := s.ready(ctx, c.Coord); err != nil {
			return nil, err
		}
		out[i] = client.Check{Coord: client.Coord(c.Coord), Expect: c.Expect, Value: c.Value, Delete: c.Delete}
	}
	if len(out) == 0 {
		return nil, nil
	}
	done, err := s.client.CheckAndPutAll(ctx, out)
	if err != nil {
		return nil, classify(ctx, err)
	}
	return done, nil
}

// ready refuses an address that cannot exist.
func (s *Store) ready(ctx context.Context, c store.Coord) error {
	if err := c.Check(); err != nil {
		return err
	}
	return s.enter(ctx)
}
