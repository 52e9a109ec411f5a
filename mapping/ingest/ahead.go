package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Of two samples at one instant the later counts, and which is later is told by the times at which requests arrive, in
// milliseconds, from which cell timestamps are made. Clocks step back, and cell timestamps can run ahead of the clock,
// when many samples that do not follow their series' latest come in a millisecond. So arrival times never run behind
// what was given before; and before any are given, a timestamp is reserved that none will exceed until a higher one is.
// A process begins with the one that it finds:
//
//	system table:  row "ahead" | family "p" | qualifier "cells" | value: milliseconds since 1970, 8 bytes
//
// It only grows. Where a clock was ahead for a while, by whatever time, all arrive at that time until the clock has
// come there: they are ordered by cell timestamps all the same.
type ahead struct {
	arrived  atomic.Int64 // the latest arrival
	reserved atomic.Int64 // no arrival or cell timestamp above it is given
	mu       sync.Mutex   // held while a timestamp is reserved
}

const (
	aheadOfClock = 2000 // how far ahead of the clock a timestamp is reserved, so that it is rarely done
	aheadOfNeed  = 200  // how far beyond what is needed, where that is ahead of the clock
)

var aheadRow, aheadQualifier = []byte("ahead"), []byte("cells")

// arrive returns when a request arrives; now is the clock.
func (a *Appender) arrive(now int64) int64 {
	now = max(now, a.cache.floor.Load())
	for {
		last := a.ahead.arrived.Load()
		if now <= last {
			return last
		}
		if a.ahead.arrived.CompareAndSwap(last, now) {
			return now
		}
	}
}

// reserve sees to it that requests may arrive at a time, and cells may be stored with it. One request does so in good
// time, while the others go on.
func (a *Appender) reserve(ctx context.Context, timestamp int64) error {
	reserved := a.ahead.reserved.Load()
	switch needed := timestamp > reserved; {
	case needed:
		a.ahead.mu.Lock()
	case timestamp <= reserved-aheadOfClock/2 || !a.ahead.mu.TryLock():
		return nil
	}
	defer a.ahead.mu.Unlock()
	reserved = a.ahead.reserved.Load()
	to := max(timestamp+aheadOfNeed, a.Now().UnixMilli()+aheadOfClock)
	if timestamp <= reserved && to < reserved+aheadOfClock/4 {
		return nil
	}
	if err := a.raise(ctx, to); err != nil && timestamp > reserved {
		return fmt.Errorf("reserve arrival times: %w", err)
	}
	return nil
}

// raise reserves a timestamp. ahead.mu must be held.
func (a *Appender) raise(ctx context.Context, to int64) error {
	for {
		have, raw, err := a.readAhead(ctx)
		if err != nil {
			return err
		}
		if have >= to { // by another process
			a.ahead.reserved.Store(have)
			return nil
		}
		done, err := a.Store.CheckAndPut(ctx, []store.Check{{
			Coord: store.Coord{
				Table: a.Settings.Tables.System, Row: aheadRow, Family: catalog.FamilySystem, Qualifier: aheadQualifier,
			},
			Expect: raw, Value: binary.BigEndian.AppendUint64(nil, uint64(to)),
		}})
		if err != nil {
			return err
		}
		if done[0] {
			a.ahead.reserved.Store(to)
			return nil
		}
	}
}

// startAhead begins with the timestamp that was reserved last, by whatever process.
func (a *Appender) startAhead(ctx context.Context) error {
	to, _, err := a.readAhead(ctx)
	if err != nil {
		return err
	}
	a.ahead.reserved.Store(to)
	a.cache.gave(to)
	return nil
}

// readAhead reads the timestamp that is reserved, 0 if there is none, and its bytes.
func (a *Appender) readAhead(ctx context.Context) (to int64, raw []byte, err error) {
	for row, err := range a.Store.Get(ctx, store.Get{Table: a.Settings.Tables.System, Rows: [][]byte{aheadRow}}) {
		if err != nil {
			return 0, nil, fmt.Errorf("read the reserved arrival time: %w", err)
		}
		if len(row.Cells) != 1 || len(row.Cells[0].Value) != 8 {
			return 0, nil, fmt.Errorf("%w: row %q of table %s is not a timestamp", mapping.ErrCorrupt, aheadRow,
				a.Settings.Tables.System)
		}
		raw = bytes.Clone(row.Cells[0].Value)
	}
	if raw == nil {
		return 0, nil, nil
	}
	return int64(binary.BigEndian.Uint64(raw)), raw, nil
}
