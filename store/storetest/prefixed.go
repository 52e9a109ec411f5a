package storetest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/store"
)

// prefixed is a store within another: its rows are those of the other one whose keys begin with a prefix.
type prefixed struct {
	store.Store
	prefix string
}

// Prefixed gives a store that keeps its rows in another one, with a prefix before their keys. To a test that needs an
// empty store hundreds of times, where making and deleting tables takes seconds, a new prefix is one: what has another
// prefix is never read. Prefixes must be of one length. A row key may be shorter than elsewhere by as much. Tables are
// common to all prefixes, and Close closes the other store.
func Prefixed(inner store.Store, prefix string) store.Store { return prefixed{inner, prefix} }

// row is where a row stands in the other store.
func (p prefixed) row(key []byte) []byte { return append([]byte(p.prefix), key...) }

// rows yields rows as they are named here.
func (p prefixed) rows(rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for row, err := range rows {
			if err == nil {
				row.Key = row.Key[len(p.prefix):]
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// Apply implements store.Store.
func (p prefixed) Apply(ctx context.Context, b *store.Batch) error {
	if err := b.Err(); err != nil {
		return err
	}
	var out store.Batch
	for i := range b.Len() {
		m := b.At(i)
		if m.Delete {
			out.Delete(m.Table, p.row(m.Row), string(m.Family), m.Qualifier, m.Timestamp)
		} else {
			out.Put(m.Table, p.row(m.Row), string(m.Family), m.Qualifier, m.Timestamp, m.Value)
		}
	}
	return p.Store.Apply(ctx, &out)
}

// Get implements store.Store.
func (p prefixed) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	g.Rows = slices.Clone(g.Rows)
	for i := range g.Rows {
		g.Rows[i] = p.row(g.Rows[i])
	}
	return p.rows(p.Store.Get(ctx, g))
}

// Scan implements store.Store.
func (p prefixed) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	ranges := s.Ranges
	if len(ranges) == 0 {
		ranges = []store.Range{{}}
	}
	s.Ranges = nil
	for _, r := range ranges {
		stop := p.row(r.Stop)
		if len(r.Stop) == 0 {
			stop = append(stop[:len(stop)-1], stop[len(stop)-1]+1)
		}
		s.Ranges = append(s.Ranges, store.Range{Start: p.row(r.Start), Stop: stop})
	}
	if match := s.Filter.Match; match != nil {
		s.Filter.Match = func(row []byte) bool { return match(row[len(p.prefix):]) }
	}
	if s.Filter.Regexp != "" {
		s.Filter.Regexp = fmt.Sprintf("^.{%d}%s", len(p.prefix), strings.TrimPrefix(s.Filter.Regexp, "^"))
	}
	return p.rows(p.Store.Scan(ctx, s))
}

// Increment implements store.Store.
func (p prefixed) Increment(ctx context.Context, c store.Coord, delta int64) (int64, error) {
	c.Row = p.row(c.Row)
	return p.Store.Increment(ctx, c, delta)
}

// CheckAndPut implements store.Store.
func (p prefixed) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	checks = slices.Clone(checks)
	for i := range checks {
		checks[i].Row = p.row(checks[i].Row)
	}
	return p.Store.CheckAndPut(ctx, checks)
}
