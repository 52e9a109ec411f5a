package pebble

import (
	"crypto/rand"
	"fmt"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

// The catalog is table 0 of the tree of the data. A row per table, named like it, has a cell per family with the ids
// that stand for the two in keys; the row with the empty key holds the version of this layout and the columns' secret.
//
//	row            qualifier      value
//	""             ""             version, 1 byte | secret, 16 bytes
//	table name     family id      table id, 1 byte | 1 if it is a log table, else 0, 1 byte | family name
//
// Ids begin at 1. A table's families are numbered in the order of their names and never change; tables are never
// removed, so no id is used again. Layout 1, with qualifiers of any length in keys, was never released.
const catalogVersion = 2

// catalog is what the store knows of its tables. It is not changed once it is in use.
type catalog struct {
	tables map[string]*table
	lastID byte
	secret [secretLen]byte
}

type table struct {
	id       byte
	name     string
	families []string // the family with id i+1, in order
	log      bool     // it is in the tree of the log tables
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
	it, err := s.data.db.NewIter(&lsm.IterOptions{
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
		_, _ = rand.Read(c.secret[:]) // never fails
		b := s.data.db.NewBatch()
		key := appendKey(nil, catalogTable, nil, 0, nil)
		value := append([]byte{catalogVersion}, c.secret[:]...)
		if err := b.Set(key, payload{body: value}.append(nil, 0), nil); err != nil {
			return nil, fmt.Errorf("begin catalog: %w", classify(err))
		}
		if err := s.change(s.ctx, len(value), func() error { return s.data.commit(b) }); err != nil {
			return nil, fmt.Errorf("begin catalog: %w", err)
		}
	case version != catalogVersion:
		return nil, fmt.Errorf(
			"%w: it has layout %d, this version of promtsd knows layout %d only; begin with an empty directory",
			store.ErrInvalid, version, catalogVersion)
	}
	return c, nil
}

// readCatalog reads no further than to a version that is not catalogVersion.
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
		h, err := parseHeader(raw)
		if err != nil {
			return nil, 0, err
		}
		value := h.rest
		if len(key.row) == 0 {
			if len(value) > 0 && value[0] != catalogVersion {
				return c, value[0], nil // what follows may look different
			}
			if len(value) != 1+secretLen {
				return nil, 0, fmt.Errorf("%w: layout version of %d bytes", store.ErrCorrupt, len(value))
			}
			version = value[0]
			copy(c.secret[:], value[1:])
			continue
		}
		if h.encoding != encodingPlain || !c.addFamily(string(key.row), key.column, value) {
			return nil, 0, fmt.Errorf("%w: catalog cell %s = %x", store.ErrCorrupt, formatKey(it.Key()), clip(value))
		}
	}
	return c, version, classify(it.Error())
}

// addFamily takes one cell of a table, whose cells come in the order of its families; false if it makes no sense.
func (c *catalog) addFamily(name string, familyID, value []byte) bool {
	if len(familyID) != 1 || len(value) < 3 || value[0] == 0 || value[0] > maxTable || value[1] > 1 {
		return false
	}
	t := c.tables[name]
	if t == nil {
		t = &table{id: value[0], name: name, log: value[1] == 1}
		c.tables[name] = t
		c.lastID = max(c.lastID, t.id)
	}
	if value[0] != t.id || (value[1] == 1) != t.log || int(familyID[0]) != len(t.families)+1 {
		return false
	}
	t.families = append(t.families, string(value[2:]))
	return true
}

// cells fills a batch with those of a table.
func (t *table) cells(b *lsm.Batch, timestamp int64) error {
	flag := byte(0)
	if t.log {
		flag = 1
	}
	for i, f := range t.families {
		key := appendKey(nil, catalogTable, []byte(t.name), 0, []byte{byte(i + 1)})
		value := append([]byte{t.id, flag}, f...)
		if err := b.Set(key, payload{body: value}.append(nil, timestamp), nil); err != nil {
			return classify(err)
		}
	}
	return nil
}

// hasLog says whether there is a log table.
func (c *catalog) hasLog() bool {
	for _, t := range c.tables {
		if t.log {
			return true
		}
	}
	return false
}

// with returns a catalog that has one more table, and the table.
func (c *catalog) with(t store.Table) (*catalog, *table, error) {
	if c.lastID == maxTable {
		return nil, nil, fmt.Errorf("%w: a store holds at most %d tables", store.ErrInvalid, maxTable)
	}
	made := &table{id: c.lastID + 1, name: t.Name, families: slices.Clone(t.Families), log: t.Log}
	next := &catalog{tables: make(map[string]*table, len(c.tables)+1), lastID: made.id, secret: c.secret}
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
