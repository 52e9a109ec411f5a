package store

import "fmt"

// Batch collects mutations for Store.Apply. It copies what it is given into one slab, so that adding a cell costs no
// allocation once the slab has grown, and Reset keeps the slab. The zero value is ready to use; it is not safe for
// concurrent use.
//
// A call with parts out of bounds (an empty row, say) is remembered, and Apply refuses the whole batch with it.
type Batch struct {
	slab   []byte
	muts   []mutation
	tables []string
	last   int // index into tables of the table named last
	err    error
}

// mutation is one entry; its bytes stand in the slab at off, in the order row, family, qualifier, value.
type mutation struct {
	off       int
	timestamp int64
	value     int32
	qualifier int32
	row       uint16
	family    uint8
	table     uint8
	delete    bool
}

// Mutation is one entry of a batch as At hands it out; its slices point into the batch.
type Mutation struct {
	Table     string
	Delete    bool // remove the cell; Value is empty
	Row       []byte
	Family    []byte
	Qualifier []byte
	Timestamp int64 // 0: the store's clock at Apply
	Value     []byte
}

// Put adds a cell. A timestamp of 0 stands for the store's clock at the time of Apply.
func (b *Batch) Put(table string, row []byte, family string, qualifier []byte, timestamp int64, value []byte) {
	b.add(table, row, family, qualifier, timestamp, value, false)
}

// Delete removes a cell, as far as it is not newer than timestamp (0 as for Put).
func (b *Batch) Delete(table string, row []byte, family string, qualifier []byte, timestamp int64) {
	b.add(table, row, family, qualifier, timestamp, nil, true)
}

func (b *Batch) add(
	table string, row []byte, family string, qualifier []byte, timestamp int64, value []byte, del bool,
) {
	if err := checkParts(table, row, family, qualifier, value); err != nil {
		if b.err == nil {
			b.err = err
		}
		return
	}
	if b.last >= len(b.tables) || b.tables[b.last] != table {
		if !b.useTable(table) {
			return
		}
	}
	b.muts = append(b.muts, mutation{
		off: len(b.slab), timestamp: timestamp, row: uint16(len(row)), family: uint8(len(family)),
		qualifier: int32(len(qualifier)), value: int32(len(value)), table: uint8(b.last), delete: del,
	})
	b.slab = append(b.slab, row...)
	b.slab = append(b.slab, family...)
	b.slab = append(b.slab, qualifier...)
	b.slab = append(b.slab, value...)
}

func (b *Batch) useTable(table string) bool {
	for i, t := range b.tables {
		if t == table {
			b.last = i
			return true
		}
	}
	if len(b.tables) == 256 {
		if b.err == nil {
			b.err = fmt.Errorf("%w: a batch for more than 256 tables", ErrInvalid)
		}
		return false
	}
	b.tables = append(b.tables, table)
	b.last = len(b.tables) - 1
	return true
}

func checkParts(table string, row []byte, family string, qualifier, value []byte) error {
	switch {
	case table == "":
		return fmt.Errorf("%w: no table named", ErrInvalid)
	case len(row) == 0 || len(row) > MaxRow:
		return fmt.Errorf("%w: row key of %d bytes, must be 1 to %d", ErrInvalid, len(row), MaxRow)
	case len(family) == 0 || len(family) > MaxFamily:
		return fmt.Errorf("%w: family name of %d bytes, must be 1 to %d", ErrInvalid, len(family), MaxFamily)
	case len(qualifier) > MaxQualifier:
		return fmt.Errorf("%w: qualifier of %d bytes, at most %d", ErrInvalid, len(qualifier), MaxQualifier)
	case len(value) > MaxValue:
		return fmt.Errorf("%w: value of %d bytes, at most %d", ErrTooLarge, len(value), MaxValue)
	}
	return nil
}

// Check refuses an address that no store can hold.
func (c Coord) Check() error { return checkParts(c.Table, c.Row, c.Family, c.Qualifier, nil) }

// Check refuses a check that no store can make.
func (c Check) Check() error {
	if c.Delete && (len(c.Expect) == 0 || len(c.Value) > 0) {
		return fmt.Errorf("%w: a removal that expects %d bytes and brings %d, must expect some and bring none",
			ErrInvalid, len(c.Expect), len(c.Value))
	}
	return checkParts(c.Table, c.Row, c.Family, c.Qualifier, c.Value)
}

// Len is the number of mutations.
func (b *Batch) Len() int { return len(b.muts) }

// Size is the number of bytes of keys and values held.
func (b *Batch) Size() int { return len(b.slab) }

// Err is the first refusal of a mutation, nil if there was none. Apply returns it.
func (b *Batch) Err() error { return b.err }

// Reset empties the batch and keeps its memory for the next use.
func (b *Batch) Reset() {
	b.slab, b.muts, b.tables, b.last, b.err = b.slab[:0], b.muts[:0], b.tables[:0], 0, nil
}

// At returns mutation i, 0 <= i < Len.
func (b *Batch) At(i int) Mutation {
	m := &b.muts[i]
	row := m.off + int(m.row)
	fam := row + int(m.family)
	qual := fam + int(m.qualifier)
	end := qual + int(m.value)
	return Mutation{
		Table: b.tables[m.table], Delete: m.delete, Timestamp: m.timestamp,
		Row: b.slab[m.off:row:row], Family: b.slab[row:fam:fam],
		Qualifier: b.slab[fam:qual:qual], Value: b.slab[qual:end:end],
	}
}
