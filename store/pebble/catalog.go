package pebble

import (
	"context"
	"fmt"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

// The catalog is table 0. A row per table, named like it, has a cell per family with the ids that stand for the two in
// keys; the row with the empty key holds the version of this layout.
//
//	row            qualifier      value
//	""             ""             version, 1 byte
//	table name     family name    table id, 1 byte | family id, 1 byte
//
// Ids begin at 1. A table's families are numbered in the order of their names and never change; tables are never
// removed, so no id is used again.
const catalogVersion = 1

// catalog is what the store knows of its tables. It is not changed once it is in use.
type catalog struct {
	tables map[string]*table
	lastID byte
}

type table struct {
	id       byte
	name     string
	families []string // the family with id i+1, in order
}

func (t *table) family(id byte) (string, bool) {
	if id == 0 || int(id) > len(t.families) {
		return "", false
	}
	return t.families[id-1], true
}

func (t *table) familyID(name string) (byte, error) {
	for i, f := range t.families {
		if f == name {
			return byte(i + 1), nil
		}
	}
	return 0, fmt.Errorf("%w: table %q has no family %q", store.ErrNoTable, t.name, name)
}

func (c *catalog) table(name string) (*table, error) {
	if t := c.tables[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q", store.ErrNoTable, name)
}

// loadCatalog reads table 0, or begins it in an empty tree.
func (s *Store) loadCatalog() (*catalog, error) {
	it, err := s.db.NewIter(&lsm.IterOptions{
		LowerBound: appendPrefix(nil, catalogTable, nil), UpperBound: appendPrefix(nil, catalogTable+1, nil),
	})
	if err != nil {
		return nil, classify(err)
	}
	c, version, err := readCatalog(it)
	if closeErr := it.Close(); err == nil && closeErr != nil {
		err = classify(closeErr)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read catalog: %w", err)
	case version > catalogVersion:
		return nil, fmt.Errorf("%w: it has layout %d, this version of promtsd knows layouts up to %d; use a newer one",
			store.ErrInvalid, version, catalogVersion)
	case version == 0 && len(c.tables) > 0:
		return nil, fmt.Errorf("read catalog: %w: tables without a layout version", store.ErrCorrupt)
	case version == 0:
		b := s.db.NewBatch()
		key := appendKey(nil, catalogTable, nil, 0, nil)
		if err := b.Set(key, appendValue(nil, 0, []byte{catalogVersion}), nil); err != nil {
			return nil, fmt.Errorf("begin catalog: %w", classify(err))
		}
		if err := s.write(context.Background(), func() error { return s.commit(b) }); err != nil {
			return nil, fmt.Errorf("begin catalog: %w", err)
		}
	}
	return c, nil
}

func readCatalog(it *lsm.Iterator) (c *catalog, version byte, err error) {
	c = &catalog{tables: map[string]*table{}}
	for it.First(); it.Valid(); it.Next() {
		raw, err := it.ValueAndErr()
		if err != nil {
			return nil, 0, classify(err)
		}
		key, err := parseKey(it.Key())
		if err != nil {
			return nil, 0, err
		}
		_, value, err := parseValue(raw)
		if err != nil {
			return nil, 0, err
		}
		if len(key.row) == 0 {
			if len(value) != 1 {
				return nil, 0, fmt.Errorf("%w: layout version of %d bytes", store.ErrCorrupt, len(value))
			}
			version = value[0]
			if version > catalogVersion {
				return c, version, nil // what follows may look different
			}
			continue
		}
		name := string(key.row)
		t := c.tables[name]
		if t == nil && len(value) == 2 {
			t = &table{id: value[0], name: name}
			c.tables[name] = t
			c.lastID = max(c.lastID, t.id)
		}
		if len(value) != 2 || value[0] != t.id || t.id == 0 || t.id > maxTable || int(value[1]) != len(t.families)+1 {
			return nil, 0, fmt.Errorf("%w: catalog cell %s = %x", store.ErrCorrupt, formatKey(it.Key()), clip(value))
		}
		t.families = append(t.families, string(key.qualifier))
	}
	return c, version, classify(it.Error())
}

// with returns a catalog that has one more table, and the table.
func (c *catalog) with(t store.Table) (*catalog, *table, error) {
	if c.lastID == maxTable {
		return nil, nil, fmt.Errorf("%w: a store holds at most %d tables", store.ErrInvalid, maxTable)
	}
	made := &table{id: c.lastID + 1, name: t.Name, families: slices.Clone(t.Families)}
	next := &catalog{tables: make(map[string]*table, len(c.tables)+1), lastID: made.id}
	for name, t := range c.tables {
		next.tables[name] = t
	}
	next.tables[t.Name] = made
	return next, made, nil
}

// checkTable refuses a table that cannot be made.
func checkTable(t store.Table) error {
	if len(t.Name) == 0 || len(t.Name) > store.MaxRow {
		return fmt.Errorf("%w: table name of %d bytes, must be 1 to %d", store.ErrInvalid, len(t.Name), store.MaxRow)
	}
	if len(t.Families) == 0 || len(t.Families) > 255 {
		return fmt.Errorf("%w: table %q with %d families, must be 1 to 255", store.ErrInvalid, t.Name, len(t.Families))
	}
	for i, f := range t.Families {
		if len(f) == 0 || len(f) > store.MaxFamily {
			return fmt.Errorf("%w: table %q: family name of %d bytes, must be 1 to %d",
				store.ErrInvalid, t.Name, len(f), store.MaxFamily)
		}
		if i > 0 && t.Families[i-1] >= f {
			return fmt.Errorf("%w: table %q: families are not sorted, or repeat: %q", store.ErrInvalid, t.Name, t.Families)
		}
	}
	return nil
}
