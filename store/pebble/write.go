package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

const (
	maxBatchBytes  = 1 << 31 // of keys and values of one batch; the tree itself stops at twice this
	retainedBytes  = 8 << 20 // of a batch that is kept for the next one
	cellExtraBytes = 32      // at most so much of a cell in a batch is neither row, family, qualifier nor value
)

// Apply implements store.Store. The whole batch takes effect, or nothing of it.
func (s *Store) Apply(ctx context.Context, b *store.Batch) (err error) {
	defer s.metrics.observe(verbApply, time.Now(), &err)
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
	e := encoder{catalog: s.catalog.Load(), now: time.Now().UnixMilli()}
	e.batch = s.db.NewBatchWithSize(size, lsm.WithMaxRetainedSizeBytes(retainedBytes))
	for i := range b.Len() {
		if err := e.add(b.At(i)); err != nil {
			_ = e.batch.Close()
			return err
		}
	}
	var err error
	if e.deletes {
		err = s.write(ctx, func() error { return s.commitDeletes(e.batch, e.deleteTimes) })
	} else {
		err = s.write(ctx, func() error { return s.commit(e.batch) })
	}
	if err == nil {
		s.metrics.cellsWritten.Add(float64(b.Len()))
	}
	return err
}

// encoder turns mutations into a batch of the tree.
type encoder struct {
	catalog *catalog
	now     int64 // for mutations without a timestamp
	batch   *lsm.Batch

	table       *table  // of the last mutation
	deletes     bool    // a delete was met
	deleteTimes []int64 // the timestamps of the deletes, in their order
}

func (e *encoder) add(m store.Mutation) error {
	if e.table == nil || e.table.name != m.Table {
		t, err := e.catalog.table(m.Table)
		if err != nil {
			return err
		}
		e.table = t
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
	keyLen := prefixLen(m.Row) + suffixLen(m.Qualifier)
	if m.Delete {
		e.deletes = true
		e.deleteTimes = append(e.deleteTimes, timestamp)
		op := e.batch.DeleteDeferred(keyLen)
		appendKey(op.Key[:0], e.table.id, m.Row, family, m.Qualifier)
		return classify(op.Finish())
	}
	op := e.batch.SetDeferred(keyLen, valueLen(timestamp, m.Value))
	appendKey(op.Key[:0], e.table.id, m.Row, family, m.Qualifier)
	appendValue(op.Value[:0], timestamp, m.Value)
	return classify(op.Finish())
}

// commitDeletes applies a batch with deletes, each of which takes effect only if the cell it meets, in the tree or in
// the batch before it, is not newer.
func (s *Store) commitDeletes(encoded *lsm.Batch, times []int64) error {
	defer func() { _ = encoded.Close() }()
	b := s.db.NewIndexedBatch()
	s.writeMu.Lock()
	err := func() error {
		for r := encoded.Reader(); ; {
			kind, key, value, ok, err := r.Next()
			if err != nil {
				return classify(err)
			}
			if !ok {
				return nil
			}
			if kind == lsm.InternalKeyKindSet {
				err = b.Set(key, value, nil)
			} else {
				err = deleteOlder(b, key, times[0])
				times = times[1:]
			}
			if err != nil {
				return classify(err)
			}
		}
	}()
	if err != nil || b.Empty() {
		s.writeMu.Unlock()
		_ = b.Close()
		return err
	}
	return s.commitLocked(b, s.writeMu.Unlock)
}

func deleteOlder(b *lsm.Batch, key []byte, timestamp int64) error {
	have, _, ok, err := readCell(b, key)
	if err != nil || !ok || have > timestamp {
		return err
	}
	return b.Delete(key, nil)
}

// Increment implements store.Store.
func (s *Store) Increment(ctx context.Context, c store.Coord, delta int64) (sum int64, err error) {
	defer s.metrics.observe(verbIncrement, time.Now(), &err)
	if err := s.begin(ctx); err != nil {
		return 0, fmt.Errorf("increment: %w", err)
	}
	defer s.calls.Done()
	key, err := s.cellKey(c)
	if err != nil {
		return 0, fmt.Errorf("increment: %w", err)
	}
	result := make(chan int64, 1)
	err = s.write(ctx, func() error {
		s.writeMu.Lock()
		sum, b, err := s.incremented(key, delta)
		if err != nil {
			s.writeMu.Unlock()
			return err
		}
		if err := s.commitLocked(b, s.writeMu.Unlock); err != nil {
			return err
		}
		result <- sum
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("increment %s: %w", formatKey(key), err)
	}
	return <-result, nil
}

func (s *Store) incremented(key []byte, delta int64) (sum int64, b *lsm.Batch, err error) {
	timestamp, value, ok, err := readCell(s.db, key)
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
	b = s.db.NewBatch()
	value = binary.BigEndian.AppendUint64(nil, uint64(sum))
	err = b.Set(key, appendValue(nil, max(timestamp, time.Now().UnixMilli()), value), nil)
	return sum, b, classify(err)
}

// CheckAndPut implements store.Store. All checks of a call are made at one moment.
func (s *Store) CheckAndPut(ctx context.Context, checks []store.Check) (put []bool, err error) {
	defer s.metrics.observe(verbCheckAndPut, time.Now(), &err)
	put, err = s.checkAndPut(ctx, checks)
	if err != nil {
		return nil, fmt.Errorf("check and put %d cells: %w", len(checks), err)
	}
	return put, nil
}

// check is a store.Check with its key encoded; it shares nothing with the caller.
type check struct {
	key, expect, value []byte
}

func (s *Store) checkAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if len(checks) == 0 {
		return nil, nil
	}
	own := make([]check, len(checks))
	seen := make(map[string]struct{}, len(checks))
	for i, c := range checks {
		key, err := s.cellKey(c.Coord)
		if err != nil {
			return nil, err
		}
		if len(c.Value) > store.MaxValue {
			return nil, fmt.Errorf("%w: value of %d bytes, at most %d", store.ErrInvalid, len(c.Value), store.MaxValue)
		}
		if _, twice := seen[string(key)]; twice {
			return nil, fmt.Errorf("%w: two checks of the cell %s", store.ErrInvalid, formatKey(key))
		}
		seen[string(key)] = struct{}{}
		own[i] = check{key: key, expect: bytes.Clone(c.Expect), value: bytes.Clone(c.Value)}
	}
	result := make(chan []bool, 1)
	err := s.write(ctx, func() error {
		s.writeMu.Lock()
		put, b, err := s.checked(own)
		if err != nil {
			s.writeMu.Unlock()
			return err
		}
		if err := s.commitLocked(b, s.writeMu.Unlock); err != nil {
			return err
		}
		result <- put
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-result, nil
}

func (s *Store) checked(checks []check) (put []bool, b *lsm.Batch, err error) {
	put = make([]bool, len(checks))
	b = s.db.NewBatch()
	now := time.Now().UnixMilli()
	for i, c := range checks {
		timestamp, value, _, err := readCell(s.db, c.key) // no bytes where there is no cell
		if err != nil {
			return nil, nil, err
		}
		if !bytes.Equal(value, c.expect) {
			continue
		}
		put[i] = true
		if err := b.Set(c.key, appendValue(nil, max(timestamp, now), c.value), nil); err != nil {
			return nil, nil, classify(err)
		}
	}
	return put, b, nil
}

func (s *Store) cellKey(c store.Coord) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	t, err := s.catalog.Load().table(c.Table)
	if err != nil {
		return nil, err
	}
	family, err := t.familyID(c.Family)
	if err != nil {
		return nil, err
	}
	n := prefixLen(c.Row) + suffixLen(c.Qualifier)
	return appendKey(make([]byte, 0, n), t.id, c.Row, family, c.Qualifier), nil
}

// readCell reads one cell from the tree or from a batch over it; the value is the caller's.
func readCell(r lsm.Reader, key []byte) (timestamp int64, value []byte, ok bool, err error) {
	raw, closer, err := r.Get(key)
	if err == lsm.ErrNotFound {
		return 0, nil, false, nil
	}
	if err != nil {
		return 0, nil, false, classify(err)
	}
	timestamp, value, err = parseValue(raw)
	value = bytes.Clone(value)
	if closeErr := closer.Close(); err == nil {
		err = classify(closeErr)
	}
	return timestamp, value, err == nil, err
}

// write runs f, which changes the tree, on a goroutine of its own, and returns when it did, or the disk fails, or ctx
// ended; in the latter cases f may go on. f must use nothing that belongs to the caller.
func (s *Store) write(ctx context.Context, f func() error) error {
	stalling := s.health.stalling()
	if err := s.health.check(); err != nil {
		return err
	}
	done := make(chan error, 1)
	s.commits.Add(1)
	go func() {
		defer s.commits.Done()
		defer func() {
			if p := recover(); p != nil { // the tree left its locks held: nothing can be written any more
				s.log.Error("store panicked in a write", "panic", p, "stack", string(debug.Stack()))
				s.health.fail(fmt.Errorf("panic in a write: %v", p))
			}
		}()
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
		err = fmt.Errorf("%w: flushes fail", store.ErrUnavailable)
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

// commitLocked applies b, which it then owns, calls unlock as soon as b is visible, and waits until b is durable.
func (s *Store) commitLocked(b *lsm.Batch, unlock func()) error {
	if b.Empty() {
		unlock()
		_ = b.Close()
		return nil
	}
	if s.noSync {
		err := s.db.Apply(b, lsm.NoSync)
		unlock()
		_ = b.Close()
		return classify(err)
	}
	err := s.db.ApplyNoSyncWait(b, lsm.Sync)
	unlock()
	if err == nil {
		err = b.SyncWait()
	}
	_ = b.Close()
	if err != nil {
		s.health.fail(err)
		return classify(err)
	}
	return nil
}

// commit applies b, which it then owns, as a plain write.
func (s *Store) commit(b *lsm.Batch) error {
	s.writeMu.RLock()
	return s.commitLocked(b, s.writeMu.RUnlock)
}
