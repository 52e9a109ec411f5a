package uid

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// The cells of a UID table. A kind is metrics, tagk or tagv.
//
//	          row         family  qualifier  value
//	counter   00          id      kind       last id given, 8 bytes
//	forward   name        id      kind       UID, as wide as its kind
//	reverse   UID         name    kind       name
//
// A name may have the bytes of a UID: the families keep them apart. A name of one zero byte would meet the counters,
// and so mapping.Names spells it otherwise.
//
// OpenTSDB's UIDMeta stands beside a reverse cell, under qualifiers of its own, and is left alone.
const (
	counterRow = "\x00"
	familyID   = "id"
	familyName = "name"
)

// qualifiers are those of the kinds, by kind.
var qualifiers = [kinds][]byte{[]byte("metrics"), []byte("tagk"), []byte("tagv")}

// table is the UID table as the store has it.
type table struct {
	store  store.Store
	name   string
	schema mapping.Schema
}

// cell is one cell to read or to write, of a family that the call names.
type cell struct {
	kind  mapping.Kind
	row   string
	value string
	found bool
	err   error // of readEach: why it cannot be read
}

// row is the row key of a UID, and the value of a forward cell.
func (t *table) row(kind mapping.Kind, uid mapping.UID) string {
	var b [8]byte
	return string(t.schema.AppendUID(b[:0], kind, uid))
}

// parseUID reads the value of a forward cell.
func (t *table) parseUID(c *cell) (mapping.UID, error) {
	uid, err := t.schema.ParseUID(c.kind, []byte(c.value))
	if err != nil {
		return 0, fmt.Errorf("read UID of %s name %.100q from table %s: %w: "+
			"the UID width that is configured may not be the one the table was made with", c.kind, c.row, t.name, err)
	}
	if uid == 0 {
		return 0, fmt.Errorf("read UID of %s name %.100q from table %s: %w: it is 0",
			c.kind, c.row, t.name, mapping.ErrCorrupt)
	}
	return uid, nil
}

// parseCounter reads the value of a counter cell; ok is false if it is none.
func parseCounter(value string) (last int64, ok bool) {
	if len(value) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64([]byte(value))), true
}

// read fills in the cells that exist, with one Get. It sorts the list; a cell may stand in it twice.
func (t *table) read(ctx context.Context, family string, cells []*cell) error {
	slices.SortFunc(cells, func(a, b *cell) int { return strings.Compare(a.row, b.row) })
	var (
		rows    [][]byte
		columns []store.Column
		asked   [kinds]bool
	)
	for i, c := range cells {
		if i == 0 || c.row != cells[i-1].row {
			rows = append(rows, []byte(c.row))
		}
		asked[c.kind] = true
	}
	for k, yes := range asked {
		if yes {
			columns = append(columns, store.Column{Family: family, Qualifier: qualifiers[k]})
		}
	}
	// Rows come in the order of the list: walk both together.
	for row, err := range t.store.Get(ctx, store.Get{Table: t.name, Rows: rows, Columns: columns}) {
		if err != nil {
			return fmt.Errorf("read table %s: %w", t.name, err)
		}
		for len(cells) > 0 && cells[0].row < string(row.Key) {
			cells = cells[1:]
		}
		for ; len(cells) > 0 && cells[0].row == string(row.Key); cells = cells[1:] {
			c := cells[0]
			for _, have := range row.Cells {
				if have.Family == family && string(have.Qualifier) == string(qualifiers[c.kind]) {
					c.value, c.found = string(have.Value), true
				}
			}
		}
	}
	return nil
}

// readEach is read where cells that cannot be read, because the store is damaged, do not cost the others: each says
// why.
func (t *table) readEach(ctx context.Context, family string, cells []*cell) error {
	err := t.read(ctx, family, slices.Clone(cells))
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	if half := len(cells) / 2; half > 0 {
		return errors.Join(t.readEach(ctx, family, cells[:half]), t.readEach(ctx, family, cells[half:]))
	}
	cells[0].err = fmt.Errorf("%w: %s name %.100q: %w", mapping.ErrCorrupt, cells[0].kind, cells[0].row, err)
	return nil
}

// create writes the cells that are absent and tells which those were. After an error any may have been written.
func (t *table) create(ctx context.Context, family string, cells []*cell) ([]bool, error) {
	checks := make([]store.Check, len(cells))
	for i, c := range cells {
		checks[i] = store.Check{Coord: t.coord(c.row, family, c.kind), Value: []byte(c.value)}
	}
	created, err := t.store.CheckAndPut(ctx, checks)
	if err != nil {
		return nil, fmt.Errorf("write table %s: %w", t.name, err)
	}
	return created, nil
}

// increment adds n to the counter of a kind and returns the sum.
func (t *table) increment(ctx context.Context, kind mapping.Kind, n int64) (int64, error) {
	sum, err := t.store.Increment(ctx, t.coord(counterRow, familyID, kind), n)
	if err != nil {
		return 0, fmt.Errorf("increment the counter in table %s: %w", t.name, err)
	}
	return sum, nil
}

func (t *table) coord(row, family string, kind mapping.Kind) store.Coord {
	return store.Coord{Table: t.name, Row: []byte(row), Family: family, Qualifier: qualifiers[kind]}
}
