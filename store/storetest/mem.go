package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/promtsd/promtsd/store"
)

// Mem is a store.Store in memory: sorted rows under one lock. It keeps the whole contract but durability. A batch takes
// effect whole. Of two puts to a cell the one with the later timestamp stays. The bytes of a row that a Get or a Scan
// handed out are overwritten when the iteration goes on, so that a test finds a caller who keeps them.
type Mem struct {
	// Clock stamps what Increment and CheckAndPut write; nil is the clock of Apply. In a cluster the two are of different
	// machines. It is set before the store is used.
	Clock func() time.Time

	mu     sync.Mutex
	tables map[string]*memTable // guarded by mu
	closed bool                 // guarded by mu
	calls  sync.WaitGroup
}

// memTable keeps each row's cells in a slice that is replaced, never changed.
type memTable struct {
	families []string
	keys     []string // sorted
	rows     map[string][]store.Cell
}

// NewMem makes a store without tables.
func NewMem() *Mem { return &Mem{tables: map[string]*memTable{}} }

// begin locks the store for a call; the caller unlocks it, and counts itself out of calls at its end.
func (m *Mem) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return store.ErrClosed
	}
	m.calls.Add(1)
	return nil
}

// now is what Increment and CheckAndPut stamp.
func (m *Mem) now() int64 {
	if m.Clock != nil {
		return m.Clock().UnixMilli()
	}
	return time.Now().UnixMilli()
}

func (m *Mem) end() {
	m.mu.Unlock()
	m.calls.Done()
}

// Tables implements store.Store.
func (m *Mem) Tables(ctx context.Context) ([]store.Table, error) {
	if err := m.begin(ctx); err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	defer m.end()
	var tables []store.Table
	for name, t := range m.tables {
		tables = append(tables, store.Table{Name: name, Families: slices.Clone(t.families)})
	}
	slices.SortFunc(tables, func(a, b store.Table) int { return strings.Compare(a.Name, b.Name) })
	return tables, nil
}

// CreateTable implements store.Store.
func (m *Mem) CreateTable(ctx context.Context, t store.Table) error {
	if err := m.begin(ctx); err != nil {
		return fmt.Errorf("create table %q: %w", t.Name, err)
	}
	defer m.end()
	sorted := slices.IsSorted(t.Families) && len(slices.Compact(slices.Clone(t.Families))) == len(t.Families)
	if t.Name == "" || len(t.Families) == 0 || slices.Contains(t.Families, "") || !sorted {
		return fmt.Errorf("create table %q: %w: families %q", t.Name, store.ErrInvalid, t.Families)
	}
	if have := m.tables[t.Name]; have != nil {
		if !slices.Equal(have.families, t.Families) {
			return fmt.Errorf("create table %q: %w: it exists with families %q", t.Name, store.ErrInvalid, have.families)
		}
		return nil
	}
	m.tables[t.Name] = &memTable{families: slices.Clone(t.Families), rows: map[string][]store.Cell{}}
	return nil
}

// Apply implements store.Store.
func (m *Mem) Apply(ctx context.Context, b *store.Batch) error {
	if err := m.begin(ctx); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	defer m.end()
	if err := b.Err(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	for i := range b.Len() {
		mut := b.At(i)
		if _, err := m.table(mut.Table, string(mut.Family)); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
	now := time.Now().UnixMilli()
	for i := range b.Len() {
		mut := b.At(i)
		t := m.tables[mut.Table]
		if mut.Timestamp == 0 {
			mut.Timestamp = now
		}
		have, ok := t.cell(mut.Row, string(mut.Family), mut.Qualifier)
		switch {
		case ok && have.Timestamp > mut.Timestamp:
		case mut.Delete:
			t.remove(mut.Row, string(mut.Family), mut.Qualifier)
		default:
			t.put(mut.Row, string(mut.Family), mut.Qualifier, mut.Timestamp, mut.Value)
		}
	}
	return nil
}

// Increment implements store.Store.
func (m *Mem) Increment(ctx context.Context, c store.Coord, delta int64) (int64, error) {
	if err := m.begin(ctx); err != nil {
		return 0, fmt.Errorf("increment: %w", err)
	}
	defer m.end()
	t, err := m.coord(c)
	if err != nil {
		return 0, fmt.Errorf("increment: %w", err)
	}
	have, ok := t.cell(c.Row, c.Family, c.Qualifier)
	if ok && len(have.Value) != 8 {
		return 0, fmt.Errorf("increment: %w: the cell holds %d bytes", store.ErrInvalid, len(have.Value))
	}
	sum := delta
	if ok {
		sum += int64(binary.BigEndian.Uint64(have.Value))
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(sum))
	t.put(c.Row, c.Family, c.Qualifier, max(have.Timestamp, m.now()), value)
	return sum, nil
}

// CheckAndPut implements store.Store.
func (m *Mem) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	if err := m.begin(ctx); err != nil {
		return nil, fmt.Errorf("check and put: %w", err)
	}
	defer m.end()
	for _, c := range checks {
		_, err := m.coord(c.Coord)
		if err = errors.Join(c.Check(), err); err != nil {
			return nil, fmt.Errorf("check and put: %w", err)
		}
	}
	put := make([]bool, len(checks))
	for i, c := range checks {
		t := m.tables[c.Table]
		have, _ := t.cell(c.Row, c.Family, c.Qualifier)
		if !bytes.Equal(have.Value, c.Expect) {
			continue
		}
		if put[i] = true; c.Delete {
			t.remove(c.Row, c.Family, c.Qualifier)
			continue
		}
		t.put(c.Row, c.Family, c.Qualifier, max(have.Timestamp, m.now()), c.Value)
	}
	return put, nil
}

// DeleteRange implements store.RangeDeleter.
func (m *Mem) DeleteRange(ctx context.Context, table string, r store.Range) error {
	if err := m.begin(ctx); err != nil {
		return fmt.Errorf("delete range: %w", err)
	}
	defer m.end()
	t, err := m.table(table, "")
	if err != nil {
		return fmt.Errorf("delete range: %w", err)
	}
	from, to := t.between(r)
	for _, key := range t.keys[from:to] {
		delete(t.rows, key)
	}
	t.keys = slices.Delete(t.keys, from, to)
	return nil
}

// Get implements store.Store.
func (m *Mem) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return m.read(ctx, g.Table, g.Columns, func(t *memTable) ([]string, error) {
		keys := make([]string, len(g.Rows))
		for i, row := range g.Rows {
			keys[i] = string(row)
			if len(row) == 0 || len(row) > store.MaxRow || i > 0 && keys[i-1] >= keys[i] {
				return nil, fmt.Errorf("get from %s: %w: row %x is empty, too long or not above the one before",
					g.Table, store.ErrInvalid, row)
			}
		}
		return keys, nil
	}, store.RowFilter{}, 0)
}

// Scan implements store.Store.
func (m *Mem) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	return m.read(ctx, s.Table, s.Columns, func(t *memTable) ([]string, error) {
		if len(s.Ranges) == 0 {
			return slices.Clone(t.keys), nil
		}
		var keys []string
		for i, r := range s.Ranges {
			if i > 0 {
				if stop := s.Ranges[i-1].Stop; len(stop) == 0 || bytes.Compare(stop, r.Start) > 0 {
					return nil, fmt.Errorf("scan %s: %w: range %d begins before the end of the last", s.Table,
						store.ErrInvalid, i)
				}
			}
			from, to := t.between(r)
			keys = append(keys, t.keys[from:to]...)
		}
		return keys, nil
	}, s.Filter, s.Limit)
}

// read yields the rows with the keys that choose gives, as they are at its beginning.
func (m *Mem) read(ctx context.Context, table string, columns []store.Column,
	choose func(*memTable) ([]string, error), filter store.RowFilter, limit int,
) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := m.begin(ctx); err != nil {
			yield(store.Row{}, fmt.Errorf("read %s: %w", table, err))
			return
		}
		defer m.calls.Done()
		keys, rows, err := m.snapshot(table, columns, choose)
		m.mu.Unlock()
		if err != nil {
			yield(store.Row{}, err)
			return
		}
		n := 0
		for i, key := range keys {
			if err := ctx.Err(); err != nil {
				yield(store.Row{}, fmt.Errorf("read %s: %w", table, err))
				return
			}
			if filter.Match != nil && !filter.Match([]byte(key)) {
				continue
			}
			row := wanted(key, rows[i], columns)
			if len(row.Cells) == 0 {
				continue
			}
			n++
			more := yield(row, nil)
			poison(row)
			if !more || n == limit {
				return
			}
		}
	}
}

func (m *Mem) snapshot(table string, columns []store.Column, choose func(*memTable) ([]string, error),
) (keys []string, rows [][]store.Cell, err error) {
	t, err := m.table(table, "")
	for _, c := range columns {
		if err == nil {
			_, err = m.table(table, c.Family)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read: %w", err)
	}
	if keys, err = choose(t); err != nil {
		return nil, nil, err
	}
	rows = make([][]store.Cell, len(keys))
	for i, key := range keys {
		rows[i] = t.rows[key]
	}
	return keys, rows, nil
}

// wanted is a copy of the row with the wanted columns.
func wanted(key string, cells []store.Cell, columns []store.Column) store.Row {
	row := store.Row{Key: []byte(key)}
	for _, c := range cells {
		if len(columns) == 0 || slices.ContainsFunc(columns, func(w store.Column) bool {
			return w.Family == c.Family && (w.Qualifier == nil || bytes.Equal(w.Qualifier, c.Qualifier))
		}) {
			c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
			row.Cells = append(row.Cells, c)
		}
	}
	return row
}

// poison overwrites the bytes of a row.
func poison(row store.Row) {
	fill := func(b []byte) {
		for i := range b {
			b[i] = 0xdb
		}
	}
	fill(row.Key)
	for _, c := range row.Cells {
		fill(c.Qualifier)
		fill(c.Value)
	}
	clear(row.Cells)
}

// Close implements store.Store.
func (m *Mem) Close() error {
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	m.mu.Unlock()
	if closed {
		return store.ErrClosed
	}
	m.calls.Wait()
	return nil
}

// table finds a table that has the family, if one is named.
func (m *Mem) table(name, family string) (*memTable, error) {
	t := m.tables[name]
	if t == nil || family != "" && !slices.Contains(t.families, family) {
		return nil, fmt.Errorf("%w: table %q, family %q", store.ErrNoTable, name, family)
	}
	return t, nil
}

func (m *Mem) coord(c store.Coord) (*memTable, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return m.table(c.Table, c.Family)
}

// between gives the places of a range's rows among the keys.
func (t *memTable) between(r store.Range) (from, to int) {
	from, _ = slices.BinarySearch(t.keys, string(r.Start))
	to = len(t.keys)
	if len(r.Stop) > 0 {
		to, _ = slices.BinarySearch(t.keys, string(r.Stop))
	}
	return from, max(from, to)
}

// find gives the place of a cell in its row.
func (t *memTable) find(row []byte, family string, qualifier []byte) (cells []store.Cell, at int, ok bool) {
	cells = t.rows[string(row)]
	at, ok = slices.BinarySearchFunc(cells, struct{}{}, func(c store.Cell, _ struct{}) int {
		if n := strings.Compare(c.Family, family); n != 0 {
			return n
		}
		return bytes.Compare(c.Qualifier, qualifier)
	})
	return cells, at, ok
}

func (t *memTable) cell(row []byte, family string, qualifier []byte) (store.Cell, bool) {
	cells, at, ok := t.find(row, family, qualifier)
	if !ok {
		return store.Cell{}, false
	}
	return cells[at], true
}

func (t *memTable) put(row []byte, family string, qualifier []byte, timestamp int64, value []byte) {
	cell := store.Cell{
		Family: family, Qualifier: bytes.Clone(qualifier), Timestamp: timestamp, Value: bytes.Clone(value),
	}
	cells, at, ok := t.find(row, family, qualifier)
	cells = slices.Clone(cells)
	if ok {
		cells[at] = cell
	} else {
		cells = slices.Insert(cells, at, cell)
	}
	key := string(row)
	if i, have := slices.BinarySearch(t.keys, key); !have {
		t.keys = slices.Insert(t.keys, i, key)
	}
	t.rows[key] = cells
}

func (t *memTable) remove(row []byte, family string, qualifier []byte) {
	cells, at, ok := t.find(row, family, qualifier)
	if !ok {
		return
	}
	key := string(row)
	t.rows[key] = slices.Delete(slices.Clone(cells), at, at+1)
	if len(t.rows[key]) == 0 {
		delete(t.rows, key)
		i, _ := slices.BinarySearch(t.keys, key)
		t.keys = slices.Delete(t.keys, i, i+1)
	}
}
