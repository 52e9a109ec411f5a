package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Cell timestamps can run ahead of the clock, when many samples that do not follow their series' latest come in a
// millisecond. A process must begin above all that were given before it, or what overwrites a sample would lose to it. So
// before cells ahead of the clock are stored, a timestamp is that none will exceed until another is:
//
//	own table:  row "ahead" | family "p" | qualifier "cells" | value: milliseconds since 1970, 8 bytes
type ahead struct {
	mu       sync.Mutex   // held while a timestamp is stored
	reserved atomic.Int64 // no cell timestamp above it is given, or it is not ahead of the clock
}

// aheadStep is how far beyond what is needed a timestamp is reserved, so that it is rarely done.
const aheadStep = 5000

// aheadFree is how far ahead of the clock cell timestamps may run without: no process ends and another begins in that time.
const aheadFree = 20

var aheadRow, aheadQualifier = []byte("ahead"), []byte("cells")

// reserve sees to it that cells with timestamps up to one may be stored. now is the clock.
func (a *Appender) reserve(ctx context.Context, timestamp, now int64) error {
	if timestamp <= now+aheadFree || timestamp <= a.ahead.reserved.Load() {
		return nil
	}
	a.ahead.mu.Lock()
	defer a.ahead.mu.Unlock()
	if timestamp <= a.ahead.reserved.Load() {
		return nil
	}
	to := timestamp + aheadStep
	var b store.Batch
	b.Put(a.Settings.Tables.Own, aheadRow, catalog.FamilyOwn, aheadQualifier, to, binary.BigEndian.AppendUint64(nil, uint64(to)))
	if err := a.Store.Apply(ctx, &b); err != nil {
		return fmt.Errorf("reserve cell timestamps ahead of the clock: %w", err)
	}
	a.ahead.reserved.Store(to)
	return nil
}

// startAhead begins above the timestamps that any process before has given.
func (a *Appender) startAhead(ctx context.Context) error {
	for row, err := range a.Store.Get(ctx, store.Get{Table: a.Settings.Tables.Own, Rows: [][]byte{aheadRow}}) {
		if err != nil {
			return fmt.Errorf("read cell timestamps ahead of the clock: %w", err)
		}
		if len(row.Cells) != 1 || len(row.Cells[0].Value) != 8 {
			return fmt.Errorf("%w: row %q of table %s is not a timestamp", mapping.ErrCorrupt, aheadRow, a.Settings.Tables.Own)
		}
		to := int64(binary.BigEndian.Uint64(row.Cells[0].Value))
		a.ahead.reserved.Store(to)
		a.cache.gave(to)
	}
	return nil
}
