package pebble

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/store"
)

// Tables implements store.Store.
func (s *Store) Tables(ctx context.Context) (tables []store.Table, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer s.calls.Done()
	for _, t := range s.catalog.Load().tables {
		tables = append(tables, store.Table{Name: t.name, Families: slices.Clone(t.families)})
	}
	slices.SortFunc(tables, func(a, b store.Table) int { return strings.Compare(a.Name, b.Name) })
	return tables, nil
}

// CreateTable implements store.Store.
func (s *Store) CreateTable(ctx context.Context, t store.Table) error {
	if err := s.createTable(ctx, t); err != nil {
		return fmt.Errorf("create table %q: %w", t.Name, err)
	}
	return nil
}

func (s *Store) createTable(ctx context.Context, t store.Table) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if err := checkTable(t); err != nil {
		return err
	}
	t.Families = slices.Clone(t.Families) // the write may outlive the call
	return s.change(ctx, len(t.Name), func() error {
		s.catalogMu.Lock()
		defer s.catalogMu.Unlock()
		c := s.catalog.Load()
		if have := c.tables[t.Name]; have != nil {
			if !slices.Equal(have.families, t.Families) {
				return fmt.Errorf("%w: it exists with families %q, not %q", store.ErrInvalid, have.families, t.Families)
			}
			return nil
		}
		next, made, err := c.with(t)
		if err != nil {
			return err
		}
		if made.log {
			if err := s.openLog(); err != nil {
				return err
			}
		}
		b := s.data.db.NewBatch()
		if err := made.cells(b, s.cfg.Now().UnixMilli()); err != nil {
			return err
		}
		// The catalog changes only once the table is durable, so nothing is written into one that a crash could take back.
		if err := s.data.commit(b); err != nil {
			return err
		}
		s.catalog.Store(next)
		return nil
	})
}

// begin counts a call in and refuses it where its context has ended. The caller counts it out by calls.Done.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.enter()
}
