package pebble

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

// checkEvery is after how many steps, over a cell or over a rejected row, a read looks at its context.
const checkEvery = 256

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		err := s.read(ctx, g.Table, g.Columns, func(r *reader) error {
			if err := checkRows(g.Rows); err != nil {
				return err
			}
			return r.get(g.Rows, yield)
		})
		if err != nil {
			yield(store.Row{}, fmt.Errorf("get %d rows of %s: %w", len(g.Rows), g.Table, err))
		}
	}
}

// Scan implements store.Store.
func (s *Store) Scan(ctx context.Context, sc store.Scan) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		err := s.read(ctx, sc.Table, sc.Columns, func(r *reader) error {
			if err := checkRanges(sc.Ranges); err != nil {
				return err
			}
			r.match, r.limit = sc.Filter.Match, sc.Limit
			return r.scan(sc.Ranges, yield)
		})
		if err != nil {
			yield(store.Row{}, fmt.Errorf("scan %s: %w", sc.Table, err))
		}
	}
}

func checkRows(rows [][]byte) error {
	for i, row := range rows {
		if len(row) == 0 || len(row) > store.MaxRow {
			return fmt.Errorf("%w: row key of %d bytes, must be 1 to %d", store.ErrInvalid, len(row), store.MaxRow)
		}
		if i > 0 && bytes.Compare(rows[i-1], row) >= 0 {
			return fmt.Errorf("%w: row %x is not above the one before it", store.ErrInvalid, clip(row))
		}
	}
	return nil
}

func checkRanges(ranges []store.Range) error {
	for i := 1; i < len(ranges); i++ {
		if stop := ranges[i-1].Stop; len(stop) == 0 || bytes.Compare(stop, ranges[i].Start) > 0 {
			return fmt.Errorf("%w: range from %x begins before the one before it ends", store.ErrInvalid,
				clip(ranges[i].Start))
		}
	}
	return nil
}

// read runs f with a reader over what is visible now.
func (s *Store) read(ctx context.Context, table string, columns []store.Column, f func(*reader) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	t, err := s.catalog.Load().table(table)
	if err != nil {
		return err
	}
	r := &reader{ctx: ctx, table: t, packing: &s.cfg.Packing}
	if r.columns, err = s.resolveColumns(t, columns); err != nil {
		return err
	}
	r.bounds(nil, nil)
	if r.it, err = s.treeOf(t).db.NewIter(&lsm.IterOptions{LowerBound: r.lower, UpperBound: r.upper}); err != nil {
		return classify(err)
	}
	defer func() { _ = r.it.Close() }() // its error was returned where it came up
	return f(r)
}

// wantedColumn is a store.Column with the family's id and the qualifier's column; nil stands for all.
type wantedColumn struct {
	family byte
	column []byte
}

// resolveColumns looks the families up.
func (s *Store) resolveColumns(t *table, columns []store.Column) ([]wantedColumn, error) {
	if len(columns) == 0 {
		return nil, nil
	}
	e := s.cellEncoder()
	resolved := make([]wantedColumn, len(columns))
	for i, c := range columns {
		id, err := t.familyID(c.Family)
		if err != nil {
			return nil, err
		}
		resolved[i] = wantedColumn{family: id, column: bytes.Clone(e.column(c.Qualifier))}
	}
	return resolved, nil
}

// reader walks the cells of one table and puts rows together. The memory of a row is used again for the next.
type reader struct {
	ctx     context.Context // of the call that the reader lives in
	it      *lsm.Iterator
	table   *table
	packing *Packing
	columns []wantedColumn // empty: all
	match   func(row []byte) bool
	limit   int // of rows; 0: none

	lower, upper []byte // the bounds of it
	prefix       []byte // of the row at hand: table, row, sentinel
	cells        []store.Cell
	slab         []byte // qualifiers and values of cells
	hashed       bool   // the column of the last cell was a hashed qualifier
	unsorted     bool   // the cells are not in the order of their qualifiers
	steps        int

	rows int // so far
}

// bounds sets lower and upper to the keys of [start, stop); empty ones are the ends of the table.
func (r *reader) bounds(start, stop []byte) {
	r.lower, r.upper = appendBounds(r.lower[:0], r.upper[:0], r.table.id, start, stop)
}

func (r *reader) get(rows [][]byte, yield func(store.Row, error) bool) error {
	for _, row := range rows {
		if err := r.step(); err != nil {
			return err
		}
		r.prefix = appendPrefix(r.prefix[:0], r.table.id, row)
		if !r.it.SeekPrefixGE(r.prefix) {
			if err := r.it.Error(); err != nil {
				return classify(err)
			}
			continue
		}
		if err := r.readRow(); err != nil {
			return err
		}
		if len(r.cells) > 0 && !r.yield(yield) {
			return nil
		}
	}
	return nil
}

func (r *reader) scan(ranges []store.Range, yield func(store.Row, error) bool) error {
	if len(ranges) == 0 {
		ranges = []store.Range{{}}
	}
	for _, rg := range ranges {
		if len(rg.Stop) > 0 && bytes.Compare(rg.Start, rg.Stop) >= 0 {
			continue
		}
		if err := r.step(); err != nil {
			return err
		}
		r.bounds(rg.Start, rg.Stop)
		r.it.SetBounds(r.lower, r.upper)
		more, err := r.scanRange(yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// scanRange yields the rows within the bounds; more says whether the scan goes on to the next range.
func (r *reader) scanRange(yield func(store.Row, error) bool) (more bool, err error) {
	for ok := r.it.First(); ok; {
		key := r.it.Key()
		r.prefix = append(r.prefix[:0], key[:splitKey(key)]...)
		if r.match != nil && !r.match(r.prefix[1:len(r.prefix)-1]) {
			if err := r.step(); err != nil {
				return false, err
			}
			ok = r.it.NextPrefix()
			continue
		}
		if err := r.readRow(); err != nil {
			return false, err
		}
		if len(r.cells) > 0 {
			if !r.yield(yield) || r.rows == r.limit {
				return false, nil
			}
		}
		ok = r.it.Valid()
	}
	return true, classify(r.it.Error())
}

// readRow collects the wanted cells of the row with the prefix at hand, on whose first cell the iterator stands, and
// leaves it behind the row.
func (r *reader) readRow() error {
	r.cells, r.slab, r.hashed, r.unsorted = r.cells[:0], r.slab[:0], false, false
	if err := r.readCells(); err != nil {
		return err
	}
	if r.unsorted {
		slices.SortFunc(r.cells, compareCells)
	}
	return nil
}

// compareCells orders the cells of a row.
func compareCells(a, b store.Cell) int {
	if c := strings.Compare(a.Family, b.Family); c != 0 {
		return c
	}
	return bytes.Compare(a.Qualifier, b.Qualifier)
}

func (r *reader) readCells() error {
	for {
		if err := r.step(); err != nil {
			return err
		}
		key := r.it.Key()
		if !bytes.HasPrefix(key, r.prefix) || splitKey(key) != len(r.prefix) {
			return nil
		}
		suffix := suffixBody(key[len(r.prefix):])
		if len(suffix) == 0 {
			return fmt.Errorf("%w: key %s has no cell", store.ErrCorrupt, formatKey(key))
		}
		if r.wants(suffix[0], suffix[1:]) {
			if err := r.readCell(suffix[0], suffix[1:]); err != nil {
				return err
			}
		}
		if !r.it.Next() {
			return classify(r.it.Error())
		}
	}
}

func (r *reader) readCell(familyID byte, column []byte) error {
	family, ok := r.table.family(familyID)
	if !ok {
		return fmt.Errorf("%w: key %s names a family that does not exist", store.ErrCorrupt, formatKey(r.it.Key()))
	}
	raw, err := r.it.ValueAndErr()
	if err != nil {
		return classify(err)
	}
	h, err := parseHeader(raw)
	if err != nil {
		return fmt.Errorf("cell %s: %w", formatKey(r.it.Key()), err)
	}
	at := len(r.slab)
	slab, n, err := r.packing.decode(r.slab, column, h)
	if err != nil {
		return fmt.Errorf("cell %s: %w", formatKey(r.it.Key()), err)
	}
	r.slab = slab // where it had to grow, the cells before keep the old one
	mid, end := at+n, len(slab)
	cell := store.Cell{Family: family, Qualifier: slab[at:mid:mid], Timestamp: h.timestamp, Value: slab[mid:end:end]}
	// The first bytes of hashed qualifiers make the order right in most cases, not in all.
	hashed := isHashed(column)
	if (hashed || r.hashed) && len(r.cells) > 0 && compareCells(r.cells[len(r.cells)-1], cell) > 0 {
		r.unsorted = true
	}
	r.hashed = hashed
	r.cells = append(r.cells, cell)
	return nil
}

func (r *reader) wants(family byte, column []byte) bool {
	if len(r.columns) == 0 {
		return true
	}
	return slices.ContainsFunc(r.columns, func(c wantedColumn) bool {
		return c.family == family && (c.column == nil || bytes.Equal(c.column, column))
	})
}

func (r *reader) yield(yield func(store.Row, error) bool) bool {
	r.rows++
	n := len(r.prefix) - 1
	return yield(store.Row{Key: r.prefix[1:n:n], Cells: r.cells}, nil)
}

// step looks at the context now and then, and the first time.
func (r *reader) step() error {
	r.steps++
	if r.steps%checkEvery != 1 {
		return nil
	}
	return r.ctx.Err()
}
