// Package cellio writes and reads the cells of any store as JSON lines, one cell a line:
//
//	{"table":"tsdb","row":"00000150e227...","family":"t","qualifier":"0000","timestamp":1795253864620,"value":"00"}
//
// row, qualifier and value are hexadecimal, the timestamp is milliseconds since 1970. Lines of one table stand in the
// order of its cells, so two dumps can be compared as text.
package cellio

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/promtsd/promtsd/store"
)

// Progress is told how many cells are done; it may be nil.
type Progress func(cells int)

// Dump writes all cells of some tables, in the order named.
func Dump(ctx context.Context, st store.Store, tables []string, w io.Writer, progress Progress) error {
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	cells := 0
	for _, table := range tables {
		for row, err := range st.Scan(ctx, store.Scan{Table: table}) {
			if err != nil {
				return fmt.Errorf("dump table %q after %d cells: %w", table, cells, err)
			}
			for _, c := range row.Cells {
				line = appendLine(line[:0], table, row.Key, c)
				if _, err := out.Write(line); err != nil {
					return fmt.Errorf("write cells: %w", err)
				}
			}
			cells += len(row.Cells)
			if progress != nil {
				progress(cells)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write cells: %w", err)
	}
	return nil
}

func appendLine(dst []byte, table string, row []byte, c store.Cell) []byte {
	dst = appendString(append(dst, `{"table":`...), table)
	dst = hex.AppendEncode(append(dst, `,"row":"`...), row)
	dst = appendString(append(dst, `","family":`...), c.Family)
	dst = hex.AppendEncode(append(dst, `,"qualifier":"`...), c.Qualifier)
	dst = strconv.AppendInt(append(dst, `","timestamp":`...), c.Timestamp, 10)
	dst = hex.AppendEncode(append(dst, `,"value":"`...), c.Value)
	return append(dst, "\"}\n"...)
}

func appendString(dst []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string can always be marshalled
	return append(dst, quoted...)
}

// line is one line as it is read.
type line struct {
	Table     string   `json:"table"`
	Row       hexBytes `json:"row"`
	Family    string   `json:"family"`
	Qualifier hexBytes `json:"qualifier"`
	Timestamp int64    `json:"timestamp"`
	Value     hexBytes `json:"value"`
}

func (l *line) parse(text []byte) error {
	if err := json.Unmarshal(text, l); err != nil {
		return err
	}
	return l.check()
}

// check refuses a line that lacks something. An empty qualifier or value must be said; a timestamp of 0 would become
// the time of the load.
func (l *line) check() error {
	var missing string
	switch {
	case l.Table == "":
		missing = "table"
	case len(l.Row.bytes) == 0:
		missing = "row"
	case l.Family == "":
		missing = "family"
	case !l.Qualifier.given:
		missing = "qualifier"
	case !l.Value.given:
		missing = "value"
	case l.Timestamp == 0:
		missing = "timestamp"
	case l.Timestamp < 0:
		return fmt.Errorf("timestamp %d is before 1970", l.Timestamp)
	default:
		return store.Coord{Table: l.Table, Row: l.Row.bytes, Family: l.Family, Qualifier: l.Qualifier.bytes}.Check()
	}
	return fmt.Errorf("no %s", missing)
}

// hexBytes are bytes that JSON has as a string of hexadecimal digits.
type hexBytes struct {
	bytes []byte
	given bool
}

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	h.bytes, err = hex.AppendDecode(h.bytes[:0], text)
	h.given = true
	return err
}

// batchBytes is how much Load writes at a time.
const batchBytes = 1 << 20

// Load writes the cells of r into the store. It reads r twice, first to learn which tables and families there are: a
// table that does not exist is made, one that exists must have the families. Cells that are there already are
// replaced, so a load that was cut short may be repeated. It returns the number of cells written. A line that is no
// whole cell is an error that names its number; nothing is written then.
func Load(ctx context.Context, st store.Store, r io.ReadSeeker, progress Progress) (int, error) {
	if err := makeTables(ctx, st, r); err != nil {
		return 0, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read cells again: %w", err)
	}
	var b store.Batch
	cells, table := 0, ""
	apply := func() error {
		if err := st.Apply(ctx, &b); err != nil {
			return fmt.Errorf("load cells %d to %d: %w", cells-b.Len()+1, cells, err)
		}
		b.Reset()
		if progress != nil {
			progress(cells)
		}
		return nil
	}
	err := readLines(r, func(n int, l *line) error {
		if l.Table != table && b.Len() > 0 { // log tables do not go with others
			if err := apply(); err != nil {
				return err
			}
		}
		table = l.Table
		b.Put(l.Table, l.Row.bytes, l.Family, l.Qualifier.bytes, l.Timestamp, l.Value.bytes)
		if err := b.Err(); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		cells++
		if b.Size() < batchBytes {
			return nil
		}
		return apply()
	})
	if err != nil {
		return cells - b.Len(), err
	}
	if err := apply(); err != nil {
		return cells - b.Len(), err
	}
	return cells, nil
}

func makeTables(ctx context.Context, st store.Store, r io.Reader) error {
	var tables []store.Table
	err := readLines(r, func(n int, l *line) error {
		at := slices.IndexFunc(tables, func(t store.Table) bool { return t.Name == l.Table })
		if at < 0 {
			at = len(tables)
			tables = append(tables, store.Table{Name: l.Table})
		}
		if !slices.Contains(tables[at].Families, l.Family) {
			tables[at].Families = append(tables[at].Families, l.Family)
		}
		return nil
	})
	if err != nil {
		return err
	}
	existing, err := st.Tables(ctx)
	if err != nil {
		return err
	}
next:
	for _, t := range tables {
		slices.Sort(t.Families)
		for _, e := range existing {
			if e.Name != t.Name {
				continue
			}
			for _, f := range t.Families {
				if !slices.Contains(e.Families, f) {
					return fmt.Errorf("%w: table %q exists and has no family %q", store.ErrInvalid, t.Name, f)
				}
			}
			continue next
		}
		if err := st.CreateTable(ctx, t); err != nil {
			return fmt.Errorf("make table %q: %w", t.Name, err)
		}
	}
	return nil
}

// readLines calls f with each line and its number, from 1. The line is valid until f returns.
func readLines(r io.Reader, f func(n int, l *line) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var l line
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if len(text) > 0 {
			l = line{
				Row: hexBytes{bytes: l.Row.bytes[:0]}, Qualifier: hexBytes{bytes: l.Qualifier.bytes[:0]},
				Value: hexBytes{bytes: l.Value.bytes[:0]},
			}
			if err := l.parse(text); err != nil {
				return fmt.Errorf("line %d is no cell: %w", n, err)
			}
			if err := f(n, &l); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read cells: %w", err)
		}
	}
}
