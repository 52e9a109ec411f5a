package hbase

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return seq(func(yield func(store.Row) bool) error {
		if err := s.enter(ctx); err != nil {
			return err
		}
		var rows converter
		ask := client.Get{Table: g.Table, Rows: g.Rows, Columns: wantedColumns(g.Columns)}
		for row, err := range s.client.Get(ctx, ask) {
			if err != nil {
				return classify(ctx, err)
			}
			if !yield(rows.convert(row)) {
				return nil
			}
		}
		return nil
	})
}

// manyRanges is from how many ranges on they are left to the servers, which seek from one to the next inside one scan
// over all; fewer are scanned one after the other.
const manyRanges = 4

// Scan implements store.Store.
func (s *Store) Scan(ctx context.Context, scan store.Scan) iter.Seq2[store.Row, error] {
	return seq(func(yield func(store.Row) bool) error {
		ranges, err := wantedRanges(scan.Ranges)
		if err != nil {
			return err
		}
		if err := s.enter(ctx); err != nil {
			return err
		}
		columns := wantedColumns(scan.Columns)
		var filter wire.AllOf
		if n := len(ranges); n >= manyRanges {
			var all wire.MultiRowRange
			for _, r := range ranges {
				all = append(all, wire.RowRange{Start: r.Start, Stop: r.Stop})
			}
			filter = append(filter, all)
			ranges = []store.Range{{Start: ranges[0].Start, Stop: ranges[n-1].Stop}}
		}
		if scan.Filter.Regexp != "" {
			filter = append(filter, wire.RowFilter{Op: wire.Equal, Comparator: wire.Regex("(?s)" + scan.Filter.Regexp)})
		}
		left := scan.Limit
		for _, r := range ranges {
			ask := client.Scan{Table: scan.Table, Start: r.Start, Stop: r.Stop, Columns: columns}
			if len(filter) > 0 {
				ask.Filter = filter
			}
			if scan.Filter.Match == nil {
				ask.Limit = left // else it counts rows that Match rejects
			}
			more, err := s.scanRange(ctx, ask, scan.Filter.Match, scan.Limit > 0, &left, yield)
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
}

// scanRange yields the rows of one range; more says whether any further are wanted.
func (s *Store) scanRange(
	ctx context.Context, ask client.Scan, match func([]byte) bool, limited bool, left *int, yield func(store.Row) bool,
) (more bool, err error) {
	var rows converter
	for row, err := range s.client.Scan(ctx, ask) {
		if err != nil {
			return false, classify(ctx, err)
		}
		if match != nil && !match(row.Key) {
			continue
		}
		if !yield(rows.convert(row)) {
			return false, nil
		}
		if limited {
			if *left--; *left == 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// wantedRanges checks that ranges ascend and leaves out those that hold nothing.
func wantedRanges(ranges []store.Range) ([]store.Range, error) {
	if len(ranges) == 0 {
		return []store.Range{{}}, nil
	}
	var out []store.Range
	for i, r := range ranges {
		if i > 0 && (len(ranges[i-1].Stop) == 0 || bytes.Compare(ranges[i-1].Stop, r.Start) > 0) {
			return nil, fmt.Errorf("%w: scan: range %d is not behind the one before it", store.ErrInvalid, i+1)
		}
		if len(r.Stop) == 0 || bytes.Compare(r.Start, r.Stop) < 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

// converter turns rows of the client into rows of the store, in memory that it uses again.
type converter struct {
	families []string // met so far
	cells    []store.Cell
}

func (c *converter) convert(row client.Row) store.Row {
	c.cells = c.cells[:0]
	for i := range row.Cells {
		cell := &row.Cells[i]
		c.cells = append(c.cells, store.Cell{
			Family: c.family(cell.Family), Qualifier: cell.Qualifier, Timestamp: cell.Timestamp, Value: cell.Value,
		})
	}
	return store.Row{Key: row.Key, Cells: c.cells}
}

func (c *converter) family(name []byte) string {
	for _, f := range c.families {
		if f == string(name) {
			return f
		}
	}
	c.families = append(c.families, string(name))
	return c.families[len(c.families)-1]
}
