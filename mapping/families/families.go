// Package families stores the metadata of metric families (type, help and unit) in the system table.
//
//	system table:  row 'm' | name of the family | family "p" | empty qualifier
//	               value: {"type":"counter","unit":"","help":"..."}, as JSON, which is as Prometheus's API shows it
//
// Of two that say different things of one family the one that was written last counts.
package families

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

const prefix = 'm'

var emptyQualifier = []byte{}

// Bounds of what is kept of a family.
const (
	maxName = 8 << 10
	maxText = 64 << 10 // help and unit together
)

var allRows = []store.Range{{Start: []byte{prefix}, Stop: []byte{prefix + 1}}}

func rowKey(name string) []byte { return append([]byte{prefix}, name...) }

// Reader reads what is kept, by whichever promtsd it was written. It is safe for concurrent use.
type Reader struct {
	Store  store.Store
	Tables catalog.Tables
}

// Metadata calls f with the metadata of the family with a name, if there is any; with an empty name with that of all
// families, ordered by name, of limit at most if that is above 0. It ends with the first error of f.
func (r Reader) Metadata(ctx context.Context, name string, limit int,
	f func(name string, m metadata.Metadata) error) error {
	rows := r.Store.Scan(ctx, store.Scan{
		Table: r.Tables.System, Ranges: allRows, Limit: max(limit, 0),
	})
	if name != "" {
		if len(name) > maxName {
			return nil
		}
		rows = r.Store.Get(ctx, store.Get{Table: r.Tables.System, Rows: [][]byte{rowKey(name)}})
	}
	for row, err := range rows {
		if err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		var m metadata.Metadata
		if err := json.Unmarshal(row.Cells[0].Value, &m); err != nil {
			return fmt.Errorf("read metadata of family %.64q: %w: %w", row.Key[1:], mapping.ErrCorrupt, err)
		}
		if err := f(string(row.Key[1:]), m); err != nil {
			return err
		}
	}
	return nil
}
