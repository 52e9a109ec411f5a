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
	Bytes  int   // of its cell's value
	Err    error // why it cannot be read; nil: it can
}

// Inspect calls f with each entry in the store, in order of writers and numbers.
func Inspect(ctx context.Context, st store.Store, tables catalog.Tables, f func(Item)) error {
	for row, err := range st.Scan(ctx, store.Scan{Table: tables.Journal()}) {
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if len(row.Key) != 16 || len(row.Cells) != 1 {
			return fmt.Errorf("read journal: %w: row %x is not one of an entry", mapping.ErrCorrupt, row.Key)
		}
		_, err := ParseEntry(row.Cells[0].Value)
		f(Item{
			Writer: ID(binary.BigEndian.Uint64(row.Key)), Number: binary.BigEndian.Uint64(row.Key[8:]),
			Bytes: len(row.Cells[0].Value), Err: err,
		})
	}
	return nil
}

// Drop removes an entry, whose samples are given up. ok says that there was one.
func Drop(ctx context.Context, st store.Store, tables catalog.Tables, writer ID, number uint64) (ok bool, err error) {
	row := entryRow(writer, number)
	for _, err := range st.Get(ctx, store.Get{Table: tables.Journal(), Rows: [][]byte{row}}) {
		if err != nil {
			return false, err
		}
		ok = true
	}
	if !ok {
		return false, nil
	}
	return true, deleteEntries(ctx, st, tables, writer, number, number+1)
}
