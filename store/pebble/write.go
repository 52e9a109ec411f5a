package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

const (
	maxBatchBytes  = 1 << 31 // of keys and values of one batch; the tree itself stops at twice this
	retainedBytes  = 8 << 20 // of a batch that is kept for the next one
	cellExtraBytes = 48      // at most so much of a cell in a batch is neither row, family, qualifier nor value
)

// Apply implements store.Store. The whole batch takes effect, or nothing of it.
func (s *Store) Apply(ctx context.Context, b *store.Batch) error {
	if err := s.apply(ctx, b); err != nil {
		return fmt.Errorf("apply batch of %d mutations: %w", b.Len(), err)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, b *store.Batch) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if err := b.Err(); err != nil {
		return err
	}
	size := b.Size() + b.Len()*cellExtraBytes
	if size > maxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", store.ErrInvalid, size, maxBatchBytes)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := s.admit(ctx, size); err != nil {
		return err
	}
	e := encoder{store: s, catalog: s.catalog.Load(), now: s.cfg.Now().UnixMilli(), size: size}
	e.cells = s.cellEncoder()
	order, err := e.order(b)
	for _, place := range order {
		if err == nil {
			err = e.add(b.At(int(place.index)))
		}
	}
	if err != nil {
		if e.batch != nil {
			_ = e.batch.Close()
		}
		s.pending.leave(size)
		return err
	}
	return s.write(ctx, size, func() error {
		if e.deleteTimes != nil {
			return e.tree.commitDeletes(e.batch, e.deleteTimes)
		}
		return e.tree.commit(e.batch)
	})
}

// encoder turns mutations into a batch of a tree.
type encoder struct {
	store   *Store
	catalog *catalog
	cells   cellEncoder
	now     int64 // for mutations without a timestamp
	size    int   // of the batch, about

	tree  *tree // of all mutations
	batch *lsm.Batch
	table *table // of the last mutation

	deleteTimes []int64 // the timestamps of the deletes, in their order
}

// place is where a mutation stands in its batch, and its row.
type place struct {
	row   []byte
	index int32
	table byte
}

// order lists the mutations by table and row, those of a row as they stand: the tree takes neighbours at less cost than
// keys here and there.
func (e *encoder) order(b *store.Batch) ([]place, error) {
	order := make([]place, b.Len())
	sorted := true
	var last *table
	for i := range order {
		m := b.At(i)
		if last == nil || last.name != m.Table {
			t, err := e.catalog.table(m.Table)
			if err != nil {
				return nil, err
			}
			last = t
		}
		order[i] = place{row: m.Row, index: int32(i), table: last.id}
		sorted = sorted && (i == 0 || comparePlaces(order[i-1], order[i]) < 0)
	}
	if !sorted {
		slices.SortFunc(order, comparePlaces)
	}
	return order, nil
}

func comparePlaces(a, b place) int {
	if a.table != b.table {
		return int(a.table) - int(b.table)
	}
	if c := bytes.Compare(a.row, b.row); c != 0 {
		return c
	}
	return int(a.index) - int(b.index)
}

func (e *encoder) add(m store.Mutation) error {
	if e.table == nil || e.table.name != m.Table {
		if err := e.use(m.Table); err != nil {
			return err
		}
	}
	var family byte
	for i, name := range e.table.families {
		if name == string(m.Family) {
			family = byte(i + 1)
			break
		}
	}
	if family == 0 {
		_, err := e.table.familyID(string(m.Family))
		return err
	}
	timestamp := m.Timestamp
	if timestamp == 0 {
		timestamp = e.now
	}
	column := e.cells.column(m.Qualifier)
	keyLen := prefixLen(m.Row) + suffixLen(len(column))
	if m.Delete {
		e.deleteTimes = append(e.deleteTimes, timestamp)
		op := e.batch.DeleteDeferred(keyLen)
		appendKey(op.Key[:0], e.table.id, m.Row, family, column)
		return classify(op.Finish())
	}
	cell := e.cells.payload(m.Qualifier, m.Value, !e.table.log)
	op := e.batch.SetDeferred(keyLen, headerLen(timestamp)+cell.len())
	appendKey(op.Key[:0], e.table.id, m.Row, family, column)
	cell.append(op.Value[:0], timestamp)
	return classify(op.Finish())
}

// use makes a table that of the mutations that follow.
func (e *encoder) use(name string) error {
	t, err := e.catalog.table(name)
	if err != nil {
		return err
	}
	switch tree := e.store.treeOf(t); {
	case e.tree == nil:
		e.tree = tree
		e.batch = tree.db.NewBatchWithSize(e.size, lsm.WithMaxRetainedSizeBytes(retainedBytes))
	case e.tree != tree:
		return fmt.Errorf("%w: a batch for the tables %q and %q, of which one is a log table and one is not",
			store.ErrInvalid, e.table.name, name)
	}
	e.table = t
	return nil
}

// Increment implements store.Store.
func (s *Store) Increment(ctx context.Context, c store.Coord, delta int64) (sum int64, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, fmt.Errorf("increment: %w", err)
	}
	defer s.calls.Done()
	at, err := s.address(c)
	if err != nil {
		return 0, fmt.Errorf("increment: %w", err)
	}
	result := make(chan int64, 1)
	err = s.change(ctx, len(at.key), func() error {
		at.tree.writeMu.Lock()
		sum, b, err := s.incremented(at, delta)
		if err != nil {
			at.tree.writeMu.Unlock()
			return err
		}
		if err := at.tree.commitLocked(b, at.tree.writeMu.Unlock); err != nil {
			return err
		}
		result <- sum
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("increment %s: %w", formatKey(at.key), err)
	}
	return <-result, nil
}

func (s *Store) incremented(at address, delta int64) (sum int64, b *lsm.Batch, err error) {
	r := pointReader{packing: &s.cfg.Packing}
	if err := r.open(at.tree); err != nil {
		return 0, nil, err
	}
	timestamp, value, ok, err := r.read(at.key)
	if closeErr := r.close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, nil, err
	}
	if ok && len(value) != 8 {
		return 0, nil, fmt.Errorf("%w: the cell holds %d bytes, not a number of 8", store.ErrInvalid, len(value))
	}
	if ok {
		sum = int64(binary.BigEndian.Uint64(value))
	}
	sum += delta
	b = at.tree.db.NewBatch()
	e := s.cellEncoder()
	cell := e.payload(at.qualifier, binary.BigEndian.AppendUint64(nil, uint64(sum)), false)
	return sum, b, classify(b.Set(at.key, cell.append(nil, max(timestamp, s.cfg.Now().UnixMilli())), nil))
}

// address is where a cell is. It shares nothing with the caller.
type address struct {
	tree      *tree
	key       []byte
	qualifier []byte
}

func (s *Store) address(c store.Coord) (address, error) {
	e := s.cellEncoder()
	t, family, err := s.resolve(c)
	if err != nil {
		return address{}, err
	}
	key := appendKey(nil, t.id, c.Row, family, e.column(c.Qualifier))
	return address{tree: s.treeOf(t), key: key, qualifier: bytes.Clone(c.Qualifier)}, nil
}

func (s *Store) resolve(c store.Coord) (*table, byte, error) {
	if err := c.Check(); err != nil {
		return nil, 0, err
	}
	t, err := s.catalog.Load().table(c.Table)
	if err != nil {
		return nil, 0, err
	}
	family, err := t.familyID(c.Family)
	return t, family, err
}

// pointReader reads cells one by one, in one state of a tree. Ascending keys are fastest: the iterator goes on from
// where it is, and Bloom filters answer for rows that are not there.
type pointReader struct {
	packing *Packing
	it      *lsm.Iterator
	cell    []byte
}

func (r *pointReader) open(t *tree) (err error) {
	r.it, err = t.db.NewIter(&lsm.IterOptions{UseL6Filters: true})
	return classify(err)
}

// read reads one cell; the value is valid until the next call.
func (r *pointReader) read(key []byte) (timestamp int64, value []byte, ok bool, err error) {
	if !r.it.SeekPrefixGE(key) {
		return 0, nil, false, classify(r.it.Error())
	}
	if !bytes.Equal(r.it.Key(), key) {
		return 0, nil, false, nil
	}
	raw, err := r.it.ValueAndErr()
	if err != nil {
		return 0, nil, false, classify(err)
	}
	h, err := parseHeader(raw)
	if err != nil {
		return 0, nil, false, err
	}
	k, err := parseKey(key)
	if err != nil {
		return 0, nil, false, err
	}
	n := 0
	if r.cell, n, err = r.packing.decode(r.cell[:0], k.column, h); err != nil {
		return 0, nil, false, err
	}
	return h.timestamp, r.cell[n:], true, nil
}

func (r *pointReader) close() error { return classify(r.it.Close()) }

// change is admit and write in one.
func (s *Store) change(ctx context.Context, size int, f func() error) error {
	if err := s.admit(ctx, size); err != nil {
		return err
	}
	return s.write(ctx, size, f)
}

// admit waits until there is memory for a write of some bytes, which write gives back, or refuses it.
func (s *Store) admit(ctx context.Context, size int) error {
	for {
		stalling := s.health.stalling()
		if err := s.health.check(); err != nil {
			return err
		}
		left := s.pending.enter(size)
		if left == nil {
			return nil
		}
		select {
		case <-left:
		case <-stalling:
		case <-s.health.failed:
		case <-ctx.Done():
			return fmt.Errorf("%w: writes wait for the disk: %w", store.ErrUnavailable, ctx.Err())
		}
	}
}

// write runs f, which changes the tree, on a goroutine of its own, and returns when it did, or the disk fails, or ctx
// ended; in the latter cases f may go on. f must use nothing that belongs to the caller.
func (s *Store) write(ctx context.Context, size int, f func() error) error {
	stalling := s.health.stalling()
	done := make(chan error, 1)
	s.commits.Add(1)
	go func() {
		defer s.commits.Done()
		defer s.pending.leave(size)
		defer s.recoverWrite()
		done <- f()
	}()
	var err error
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	case <-s.health.failed:
		err = s.health.failure()
	case <-stalling:
		err = fmt.Errorf("%w: the disk did not take it", store.ErrUnavailable)
		if why := s.health.check(); why != nil {
			err = why
		}
	}
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("not known whether it took effect: %w", err)
	}
}
