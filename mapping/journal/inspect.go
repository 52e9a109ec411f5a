package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// ParseID reads an ID as String writes it.
func ParseID(text string) (ID, error) {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, fmt.Errorf("%w: writer %q, must be 16 hexadecimal digits", mapping.ErrInvalid, text)
	}
	return ID(n), nil
}

// Item is what can be said of an entry without taking its body apart.
type Item struct {
	Writer ID
	Number uint64
	Bytes  int   // of its cells' values
	Err    error // why it cannot be read; nil: it can
}

// Inspect calls f with each entry in the journals, in order of writers and numbers.
func Inspect(ctx context.Context, st store.Store, tables catalog.Tables, f func(Item)) error {
	var buf []byte
	for row, err := range st.Scan(ctx, store.Scan{Table: tables.Journal()}) {
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if len(row.Key) != entryRowBytes {
			return fmt.Errorf("read journal: %w: row %s is not one of an entry", mapping.ErrCorrupt, formatRow(row.Key))
		}
		item := Item{Writer: ID(binary.BigEndian.Uint64(row.Key)), Number: binary.BigEndian.Uint64(row.Key[8:])}
		for _, cell := range row.Cells {
			item.Bytes += len(cell.Value)
		}
		value, err := join(buf, row.Cells)
		if err == nil {
			_, err = ParseEntry(value)
		}
		item.Err = err
		f(item)
	}
	return nil
}
