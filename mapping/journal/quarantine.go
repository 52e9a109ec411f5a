package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// Class is what is wrong with an entry that cannot be replayed. It decides what is to be done.
type Class string

// Classes.
const (
	Newer   Class = "newer"   // a later version of promtsd wrote it
	Damaged Class = "damaged" // it is not what was written
	BadUID  Class = "uid"     // it is whole, and some of its series need a cell of the UID table that cannot be read
)

// Advice is what is to be done about an entry of the class.
func (c Class) Advice() string {
	switch c {
	case Newer:
		return "upgrade promtsd, then try it again: promtsd journal retry"
	case BadUID:
		return "the entry is whole: repair the cell of the UID table, then try it again: promtsd journal retry"
	default:
		return "restore its cells from a copy, then try it again: promtsd journal retry; or give it up: promtsd journal drop"
	}
}

// EntryError says that an entry itself is the reason why it cannot be replayed. Any other error is not about the entry,
// whose replay is to be tried again.
type EntryError struct {
	Class Class
	Err   error
}

func (e *EntryError) Error() string { return e.Err.Error() }
func (e *EntryError) Unwrap() error { return e.Err }

// Entries that cannot be replayed are moved out of the journal, as they are, so that the rest of it can be:
//
//	system table:  row 'q' | writer ID (8 bytes) | number (8 bytes) | family "p" | qualifier "about" | value: JSON
//	               the same row                                     | the cells of the entry's row in the journal, byte for byte
//
// The entry stands in both places for a moment, or in both until the next replay if promtsd ends then.
const quarantinePrefix = 'q'

var aboutQualifier = []byte("about")

func quarantineRow(writer ID, number uint64) []byte {
	return append([]byte{quarantinePrefix}, entryRow(writer, number)...)
}

// Quarantined is an entry in quarantine.
type Quarantined struct {
	Writer ID     `json:"-"`
	Number uint64 `json:"-"`

	Class   Class  `json:"class"`
	Reason  string `json:"reason"`
	Bytes   int    `json:"bytes"`   // of its cells' values
	Arrived int64  `json:"arrived"` // when its request came, in milliseconds since 1970
	Latest  int64  `json:"latest"`  // none of its samples is later
	Since   int64  `json:"since"`   // when it was put here
}

// quarantine moves an entry's row out of the journal. e is what is known of it; all zero: nothing.
func quarantine(ctx context.Context, c Config, row store.Row, e *Entry, why *EntryError) error {
	q := Quarantined{
		Writer: ID(binary.BigEndian.Uint64(row.Key)), Number: binary.BigEndian.Uint64(row.Key[8:]),
		Class: why.Class, Reason: why.Error(), Arrived: row.Cells[0].Timestamp, Latest: math.MaxInt64,
		Since: time.Now().UnixMilli(),
	}
	switch {
	case e.Latest != 0:
		q.Latest = e.Latest
	case c.Future > 0:
		q.Latest = q.Arrived + c.Future.Milliseconds()
	}
	key := quarantineRow(q.Writer, q.Number)
	var put, remove store.Batch
	for _, cell := range row.Cells {
		q.Bytes += len(cell.Value)
		put.Put(c.Tables.System, key, catalog.FamilySystem, cell.Qualifier, cell.Timestamp, cell.Value)
		remove.Delete(c.Tables.Journal(), row.Key, catalog.FamilySystem, cell.Qualifier, cell.Timestamp)
	}
	if err := q.put(&put, c.Tables, q.Since); err != nil {
		return err
	}
	for _, b := range []*store.Batch{&put, &remove} {
		if err := c.Store.Apply(ctx, b); err != nil {
			return fmt.Errorf("put journal entry %d of writer %s into quarantine: %w", q.Number, q.Writer, err)
		}
	}
	c.Logger.Error(
		"a journal entry cannot be replayed; it is in quarantine, and answers that its samples may belong to carry a warning",
		"writer", q.Writer, "entry", q.Number, "class", q.Class, "err", q.Reason, "arrived", time.UnixMilli(q.Arrived).UTC(),
		"advice", fmt.Sprintf("%s %s %d", q.Class.Advice(), q.Writer, q.Number))
	return nil
}

// put adds what is known of the entry to a batch.
func (q *Quarantined) put(b *store.Batch, tables catalog.Tables, timestamp int64) error {
	about, err := json.Marshal(q)
	if err != nil {
		return err
	}
	b.Put(tables.System, quarantineRow(q.Writer, q.Number), catalog.FamilySystem, aboutQualifier, timestamp, about)
	return nil
}

// InQuarantine lists the entries in quarantine, in order of writers and numbers.
func InQuarantine(ctx context.Context, st store.Store, tables catalog.Tables) ([]Quarantined, error) {
	var out []Quarantined
	scan := store.Scan{
		Table: tables.System, Ranges: []store.Range{{Start: []byte{quarantinePrefix}, Stop: []byte{quarantinePrefix + 1}}},
		Columns: []store.Column{{Family: catalog.FamilySystem, Qualifier: aboutQualifier}},
	}
	for row, err := range st.Scan(ctx, scan) {
		if err != nil {
			return nil, fmt.Errorf("read what is in quarantine: %w", err)
		}
		if len(row.Key) != 1+entryRowBytes {
			continue
		}
		// One that cannot be read is still there, and may have any samples.
		q := Quarantined{Class: Damaged, Latest: math.MaxInt64}
		if err := json.Unmarshal(row.Cells[0].Value, &q); err != nil {
			q.Reason = err.Error()
		}
		q.Writer, q.Number = ID(binary.BigEndian.Uint64(row.Key[1:])), binary.BigEndian.Uint64(row.Key[9:])
		out = append(out, q)
	}
	return out, nil
}

// quarantinedRow reads the row of an entry in quarantine, and hands its cells to f: those of the entry, and what is
// known of it. ok is false if there is none.
func quarantinedRow(
	ctx context.Context, st store.Store, tables catalog.Tables, writer ID, number uint64,
	f func(q Quarantined, cells []store.Cell, about store.Cell) error,
) (ok bool, err error) {
	for row, err := range st.Get(ctx, store.Get{Table: tables.System, Rows: [][]byte{quarantineRow(writer, number)}}) {
		if err != nil {
			return false, fmt.Errorf("read what is in quarantine: %w", err)
		}
		q := Quarantined{Writer: writer, Number: number}
		var cells []store.Cell
		var about store.Cell
		for _, cell := range row.Cells {
			if bytes.Equal(cell.Qualifier, aboutQualifier) {
				about = cell
				_ = json.Unmarshal(cell.Value, &q) // what cannot be read is written anew
				continue
			}
			cells = append(cells, cell)
		}
		return true, f(q, cells, about)
	}
	return false, nil
}

// Retry replays an entry that is in quarantine. When its samples are in the data table it is removed. If it is still
// the entry that is at fault, the error is an *EntryError, which is noted. ok is false if there is no such entry.
func Retry(ctx context.Context, c Config, writer ID, number uint64, r Replayer) (ok bool, err error) {
	return quarantinedRow(ctx, c.Store, c.Tables, writer, number,
		func(q Quarantined, cells []store.Cell, about store.Cell) error {
			value, err := join(nil, cells)
			var e Entry
			if err == nil {
				e, err = ParseEntry(value)
			}
			if err == nil {
				err = r.Replay(ctx, &e, new(Turn))
			}
			why, bad := errors.AsType[*EntryError](err)
			if errors.Is(err, errUnfinished) {
				why, bad = &EntryError{Damaged, fmt.Errorf("%w: piece 0 of its value is missing", mapping.ErrCorrupt)}, true
			}
			if err != nil && !bad {
				return err
			}
			if err := r.Finish(ctx); err != nil {
				return err
			}
			var b store.Batch
			if bad {
				q.Class, q.Reason = why.Class, why.Error()
				if err := q.put(&b, c.Tables, max(time.Now().UnixMilli(), about.Timestamp+1)); err != nil {
					return err
				}
				return errors.Join(why, c.Store.Apply(ctx, &b))
			}
			return remove(ctx, c.Store, c.Tables, q, append(cells, about))
		})
}

// Drop removes an entry that is in quarantine, whose samples are given up. ok says that there was one.
func Drop(ctx context.Context, st store.Store, tables catalog.Tables, writer ID, number uint64) (ok bool, err error) {
	return quarantinedRow(ctx, st, tables, writer, number,
		func(q Quarantined, cells []store.Cell, about store.Cell) error {
			return remove(ctx, st, tables, q, append(cells, about))
		})
}

func remove(ctx context.Context, st store.Store, tables catalog.Tables, q Quarantined, cells []store.Cell) error {
	var b store.Batch
	for _, cell := range cells {
		if cell.Family != "" {
			b.Delete(tables.System, quarantineRow(q.Writer, q.Number), cell.Family, cell.Qualifier, cell.Timestamp)
		}
	}
	if err := st.Apply(ctx, &b); err != nil {
		return fmt.Errorf("remove entry %d of writer %s from quarantine: %w", q.Number, q.Writer, err)
	}
	return nil
}
