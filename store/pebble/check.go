package pebble

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/promtsd/promtsd/store"
)

// CheckAndPut implements store.Store. All checks of a call are made at one moment, or at two, if some are of log tables
// and some are not.
func (s *Store) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	put, err := s.checkAndPut(ctx, checks)
	if err != nil {
		return nil, fmt.Errorf("check and put %d cells: %w", len(checks), err)
	}
	return put, nil
}

// check is a store.Check with its key encoded; it shares nothing with the caller.
type check struct {
	index                    int // of the caller's check
	tree                     *tree
	key                      []byte
	qualifier, expect, value []byte
	remove                   bool
}

func (s *Store) checkAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if len(checks) == 0 {
		return nil, nil
	}
	own, size, err := s.encodeChecks(checks)
	if err != nil {
		return nil, err
	}
	result := make(chan []bool, 1)
	err = s.change(ctx, size, func() error {
		put := make([]bool, len(own))
		for _, t := range s.trees() {
			if err := s.checkTree(t, own, put); err != nil {
				return err
			}
		}
		result <- put
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-result, nil
}

// encodeChecks copies the checks and sorts them by their keys.
func (s *Store) encodeChecks(checks []store.Check) (own []check, size int, err error) {
	for i := range checks {
		c := &checks[i]
		size += prefixLen(c.Row) + suffixLen(columnLen(len(c.Qualifier))) + len(c.Qualifier) + len(c.Expect) + len(c.Value)
	}
	if size > maxBatchBytes {
		return nil, 0, fmt.Errorf("%w: %d bytes, at most %d", store.ErrInvalid, size, maxBatchBytes)
	}
	slab := make([]byte, 0, size) // which is not moved, then
	clone := func(b []byte) []byte {
		at := len(slab)
		slab = append(slab, b...)
		return slab[at:len(slab):len(slab)]
	}
	e := s.cellEncoder()
	own = make([]check, len(checks))
	for i := range checks {
		c := &checks[i]
		if err := c.Check(); err != nil {
			return nil, 0, err
		}
		t, family, err := s.resolve(c.Coord)
		if err != nil {
			return nil, 0, err
		}
		at := len(slab)
		slab = appendKey(slab, t.id, c.Row, family, e.column(c.Qualifier))
		own[i] = check{
			index: i, tree: s.treeOf(t), key: slab[at:len(slab):len(slab)],
			qualifier: clone(c.Qualifier), expect: clone(c.Expect), value: clone(c.Value), remove: c.Delete,
		}
	}
	slices.SortFunc(own, func(a, b check) int { return compareKeys(a.key, b.key) })
	for i := 1; i < len(own); i++ {
		if bytes.Equal(own[i-1].key, own[i].key) {
			return nil, 0, fmt.Errorf("%w: two checks of the cell %s", store.ErrInvalid, formatKey(own[i].key))
		}
	}
	return own, size, nil
}

// checkTree makes the checks of one tree and says in put which of them took effect.
func (s *Store) checkTree(t *tree, checks []check, put []bool) error {
	if !slices.ContainsFunc(checks, func(c check) bool { return c.tree == t }) {
		return nil
	}
	if err := t.syncDue(); err != nil { // some may remove cells
		return err
	}
	t.writeMu.Lock()
	b, err := s.checked(t, checks, put)
	if err != nil {
		t.writeMu.Unlock()
		return err
	}
	return t.commitLocked(b, t.writeMu.Unlock)
}

func (s *Store) checked(t *tree, checks []check, put []bool) (b *lsm.Batch, err error) {
	r := pointReader{packing: &s.cfg.Packing}
	if err := r.open(t); err != nil {
		return nil, err
	}
	b = t.db.NewBatch()
	defer func() {
		if closeErr := r.close(); err == nil {
			err = closeErr
		}
		if err != nil {
			_ = b.Close()
		}
	}()
	now := s.cfg.Now().UnixMilli()
	e := s.cellEncoder()
	var value []byte
	for i := range checks {
		c := &checks[i]
		if c.tree != t {
			continue
		}
		timestamp, have, _, err := r.read(c.key) // no bytes where there is no cell
		if err != nil {
			return b, err
		}
		if !bytes.Equal(have, c.expect) {
			continue
		}
		if put[c.index] = true; c.remove {
			if err := b.Delete(c.key, nil); err != nil {
				return b, classify(err)
			}
			continue
		}
		value = e.payload(c.qualifier, c.value, false).append(value[:0], max(timestamp, now))
		if err := b.Set(c.key, value, nil); err != nil {
			return b, classify(err)
		}
	}
	return b, nil
}
