package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/store"
)

// highWater gives arrival times to requests. Of two samples at one instant the later counts, and arrival times, from
// which cell timestamps are made, say which is later. Clocks step back; and cell timestamps run ahead of the clock
// when many samples that do not follow their series' latest come within a millisecond. So no arrival time is behind
// any that was given before; and a timestamp is recorded that no cell timestamp exceeds until a higher one is
// recorded. A process begins with the recorded one:
//
//	system table:  row "ahead" | family "p" | qualifier "cells" | value: milliseconds since 1970, 8 bytes
//
// It only grows. If a clock was ahead once, all requests arrive at that time until the clock has come there: they are
// still ordered, by cell timestamps.
//
// It is safe for concurrent use.
type highWater struct {
	store    store.Store
	system   string // the system table
	now      func() time.Time
	table    *memtable.Table // knows the latest cell timestamp
	arrived  atomic.Int64    // the latest arrival time
	reserved atomic.Int64    // the recorded timestamp
	mu       sync.Mutex      // held while a timestamp is recorded
}

const (
	// aheadOfClock is by how many milliseconds the recorded timestamp is ahead of the clock, so that it is rarely written.
	aheadOfClock = 2000
	// aheadOfNeed is by how many it is beyond what is needed, where that is ahead of the clock.
	aheadOfNeed = 200
)

var highWaterRow, highWaterQualifier = []byte("ahead"), []byte("cells")

func newHighWater(c Config, t *memtable.Table) *highWater {
	return &highWater{store: c.Store, system: c.Settings.Tables.System, now: c.Now, table: t}
}

// arrive returns the arrival time of a request; now is the clock.
func (h *highWater) arrive(now int64) int64 {
	now = max(now, h.table.Floor())
	for {
		last := h.arrived.Load()
		if now <= last {
			return last
		}
		if h.arrived.CompareAndSwap(last, now) {
			return now
		}
	}
}

// reserve makes sure that the recorded timestamp is not below one that is to be used. One request records in good time,
// while the others go on.
func (h *highWater) reserve(ctx context.Context, timestamp int64) error {
	reserved := h.reserved.Load()
	switch needed := timestamp > reserved; {
	case needed:
		h.mu.Lock()
	case timestamp <= reserved-aheadOfClock/2 || !h.mu.TryLock():
		return nil
	}
	defer h.mu.Unlock()
	reserved = h.reserved.Load()
	to := max(timestamp+aheadOfNeed, h.now().UnixMilli()+aheadOfClock)
	if timestamp <= reserved && to < reserved+aheadOfClock/4 {
		return nil
	}
	if err := h.raise(ctx, to); err != nil && timestamp > reserved {
		return fmt.Errorf("reserve arrival times: %w", err)
	}
	return nil
}

// raise records a timestamp. h.mu must be held.
func (h *highWater) raise(ctx context.Context, to int64) error {
	for {
		recorded, raw, err := h.read(ctx)
		if err != nil {
			return err
		}
		if recorded >= to { // by another process
			h.reserved.Store(recorded)
			return nil
		}
		done, err := h.store.CheckAndPut(ctx, []store.Check{{
			Coord: store.Coord{
				Table: h.system, Row: highWaterRow, Family: catalog.FamilySystem, Qualifier: highWaterQualifier,
			},
			Expect: raw, Value: binary.BigEndian.AppendUint64(nil, uint64(to)),
		}})
		if err != nil {
			return err
		}
		if done[0] {
			h.reserved.Store(to)
			return nil
		}
	}
}

// load begins with the recorded timestamp, of whatever process.
func (h *highWater) load(ctx context.Context) error {
	recorded, _, err := h.read(ctx)
	if err != nil {
		return err
	}
	h.reserved.Store(recorded)
	h.table.RaiseFloor(recorded)
	return nil
}

// read reads the recorded timestamp, 0 if there is none, and its bytes.
func (h *highWater) read(ctx context.Context) (recorded int64, raw []byte, err error) {
	for row, err := range h.store.Get(ctx, store.Get{Table: h.system, Rows: [][]byte{highWaterRow}}) {
		if err != nil {
			return 0, nil, fmt.Errorf("read the recorded arrival time: %w", err)
		}
		if len(row.Cells) != 1 || len(row.Cells[0].Value) != 8 {
			return 0, nil, fmt.Errorf("%w: row %q of table %s is not a timestamp", mapping.ErrCorrupt, highWaterRow,
				h.system)
		}
		raw = bytes.Clone(row.Cells[0].Value)
	}
	if raw == nil {
		return 0, nil, nil
	}
	return int64(binary.BigEndian.Uint64(raw)), raw, nil
}
