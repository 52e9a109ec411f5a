// Package retention removes what is older than it is to be kept from a store that can delete ranges of rows. (HBase does
// it by itself: there the data table has a TTL.)
package retention

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
)

// ErrNotSupported is returned for a store that cannot delete ranges.
var ErrNotSupported = errors.New("the store cannot delete ranges of rows")

// Drop removes all rows of the data table whose hour ended before a time, in milliseconds since 1970, and the days before
// it from the series index. Since a metric's rows are ordered by their hours, that is one range for each metric, and salt
// bucket, that has such rows; it returns how many ranges it deleted.
func Drop(ctx context.Context, st store.Store, s catalog.Settings, before int64) (ranges int, err error) {
	deleter, ok := st.(store.RangeDeleter)
	if !ok {
		return 0, ErrNotSupported
	}
	if before < mapping.HourMs {
		return 0, nil
	}
	limit := mapping.BaseTime(min(before, mapping.MaxTime)) // of the first hour to be kept
	head := s.Schema.SaltWidth + s.Schema.MetricWidth
	// From metric to metric: the first row of each is its oldest.
	for start := []byte{0}; start != nil; {
		row, err := firstRow(ctx, st, s.Tables.Data, start)
		if err != nil || row == nil {
			return ranges, err
		}
		if len(row) < head+4 {
			start = append(row, 0) // none of ours; the next row
			continue
		}
		metric := row[:head]
		if binary.BigEndian.Uint32(row[head:]) < limit {
			old := store.Range{Start: row, Stop: binary.BigEndian.AppendUint32(slices.Clone(metric), limit)}
			if err := deleter.DeleteRange(ctx, s.Tables.Data, old); err != nil {
				return ranges, fmt.Errorf("delete rows before %d: %w", limit, err)
			}
			ranges++
		}
		start = index.Successor(metric)
	}
	return ranges, nil
}

// DropDays removes the days that lie wholly before a time from the series index.
func DropDays(ctx context.Context, st store.Store, s catalog.Settings, before int64) error {
	deleter, ok := st.(store.RangeDeleter)
	if !ok {
		return ErrNotSupported
	}
	if before <= 0 {
		return nil
	}
	return deleter.DeleteRange(ctx, s.Tables.Own, index.DaysBefore(index.DayOf(min(before, mapping.MaxTime))))
}

// firstRow returns the key of the first row from start on, nil if there is none.
func firstRow(ctx context.Context, st store.Store, table string, start []byte) (key []byte, err error) {
	scan := store.Scan{Table: table, Limit: 1, Ranges: []store.Range{{Start: start}}}
	for row, err := range st.Scan(ctx, scan) {
		if err != nil {
			return nil, err
		}
		key = slices.Clone(row.Key)
	}
	return key, nil
}
