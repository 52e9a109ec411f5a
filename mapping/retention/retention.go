// Package retention removes what is older than it is to be kept from a store that can delete ranges of rows. (HBase
// does it by itself: there the tables have a TTL.)
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

// Drop removes all rows of the data table whose hour ended before a time, in milliseconds since 1970, and the exemplars
// of these hours. Since a metric's rows are ordered by their hours, that is one range for each metric, and salt bucket,
// that has such rows; it returns how many ranges it deleted.
func Drop(ctx context.Context, st store.Store, s catalog.Settings, before int64) (ranges int, err error) {
	deleter, ok := st.(store.RangeDeleter)
	if !ok {
		return 0, ErrNotSupported
	}
	if before < mapping.HourMs {
		return 0, nil
	}
	d := dropper{st: st, deleter: deleter, limit: mapping.BaseTime(min(before, mapping.MaxTime))}
	err = d.drop(ctx, s.Tables.Data, s.Schema.SaltWidth+s.Schema.MetricWidth)
	if err == nil {
		err = d.drop(ctx, s.Tables.Exemplars(), s.Schema.MetricWidth)
	}
	return d.ranges, err
}

// dropper deletes rows by their hours.
type dropper struct {
	st      store.Store
	deleter store.RangeDeleter
	limit   uint32 // the first base time to be kept
	ranges  int    // deleted
}

// drop deletes the rows of a table whose keys have a base time before the limit. It stands behind a head of some bytes:
// the metric, and what is before it.
func (d *dropper) drop(ctx context.Context, table string, head int) error {
	// From metric to metric: the first row of each is its oldest.
	for start := []byte{0}; start != nil; {
		row, err := firstRow(ctx, d.st, table, store.Range{Start: start})
		if err != nil || row == nil {
			return err
		}
		if len(row) < head+4 {
			start = append(row, 0) // none of ours; the next row
			continue
		}
		metric := row[:head]
		if binary.BigEndian.Uint32(row[head:]) < d.limit {
			old := store.Range{Start: row, Stop: binary.BigEndian.AppendUint32(slices.Clone(metric), d.limit)}
			if err := d.deleter.DeleteRange(ctx, table, old); err != nil {
				return fmt.Errorf("delete rows before %d: %w", d.limit, err)
			}
			d.ranges++
		}
		start = store.PrefixEnd(metric)
	}
	return nil
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
	return deleter.DeleteRange(ctx, s.Tables.System, index.DaysBefore(mapping.DayOf(min(before, mapping.MaxTime))))
}

// firstRow returns the key of the first row of a range, nil if there is none.
func firstRow(ctx context.Context, st store.Store, table string, r store.Range) (key []byte, err error) {
	scan := store.Scan{Table: table, Limit: 1, Ranges: []store.Range{r}}
	for row, err := range st.Scan(ctx, scan) {
		if err != nil {
			return nil, err
		}
		key = slices.Clone(row.Key)
	}
	return key, nil
}
