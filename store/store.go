// Package store is the contract of a wide-column store: tables of rows, rows of cells, each cell addressed by (table,
// row, family, qualifier). It is what HBase offers, cut down to what promtsd needs, and it knows nothing of metrics or
// time. Implementations live below it (store/pebble, store/hbase); store/storetest is the suite that each one passes.
//
// Order. Rows of a table are ordered by the unsigned bytes of their keys; the cells of a row by family name, then by
// the unsigned bytes of their qualifiers.
//
// Versions. A cell has one version. Timestamps are milliseconds since 1970. A Put whose timestamp is not below that of
// the cell it meets replaces it; below it, either may remain, so writers use timestamps that do not run backwards.
// A Delete removes what is not newer than itself, and may hide a later Put that is not newer either.
//
// One clock for a cell. Increment and CheckAndPut stamp what they write by the store's own clock, which in a cluster is
// not the caller's: a Put or Delete by the caller's clock may lose against it, with no error. So a cell that was ever
// written by one of them is written and removed by them only, or deleted with the very timestamp that was read with it.
// And a cell that a check has removed is not written again: what hides the removed version may hide a later one, where
// clocks step back.
//
// Durability. When Apply, Increment or CheckAndPut return nil, their effect survives the sudden end of the process and
// of the machine it ran on, and every Get and Scan that starts afterwards sees it.
//
// Ownership. Callers may reuse every slice they passed in as soon as a call returned. Slices handed out by Get and Scan
// are valid only until the iteration goes on or ends.
//
// Every method may be called by many goroutines at once. A method that takes a context returns soon after its end with
// an error that wraps the context's.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// What a caller can do about an error decides its class; implementations wrap these.
var (
	// ErrInvalid marks a call that can never succeed: an empty or too long row key, an unknown kind of value.
	ErrInvalid = errors.New("invalid request to the store")
	// ErrTooLarge is an ErrInvalid because of a size: a store never holds a cell, or a row, that has so many bytes.
	ErrTooLarge = fmt.Errorf("%w: too large", ErrInvalid)
	// ErrNoTable marks a table or a family that does not exist.
	ErrNoTable = errors.New("no such table")
	// ErrUnavailable marks a failure that may pass: repeat the call later. A write may or may not have taken effect.
	ErrUnavailable = errors.New("store unavailable")
	// ErrCorrupt marks stored bytes that contradict their format or checksum. Repeating does not help.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrClosed marks a call after Close.
	ErrClosed = errors.New("store is closed")
)

// Bounds of the key parts, those of HBase's cell format.
const (
	MaxRow       = 32767   // bytes of a row key, at least 1
	MaxFamily    = 255     // bytes of a family name, at least 1
	MaxQualifier = 1 << 24 // bytes of a qualifier; empty is allowed
	MaxValue     = 1 << 28 // bytes of a value; empty is allowed
)

// Store is one set of tables.
type Store interface {
	// Tables lists the tables, sorted by name.
	Tables(ctx context.Context) ([]Table, error)

	// CreateTable makes a table. One that exists already with the same families is left as it is, without an error;
	// with other families it is ErrInvalid.
	CreateTable(ctx context.Context, t Table) error

	// Apply writes the whole batch. The mutations of one row take effect together and in the order of the batch; a
	// store may promise the same for the whole batch (the embedded one does) or may have applied some rows and not
	// others when it returns an error. A batch of puts and deletes with explicit timestamps may be applied again.
	Apply(ctx context.Context, b *Batch) error

	// Get yields the rows named by g that have at least one cell in the wanted columns, in ascending order. If it
	// meets an error it yields that once, with an empty Row, and ends.
	Get(ctx context.Context, g Get) iter.Seq2[Row, error]

	// Scan yields the rows that s describes, in ascending order, each whole as far as its wanted columns go; rows
	// without a cell in them are left out. Errors as for Get.
	//
	// A Scan sees all that was acknowledged before it began. What is written meanwhile may be seen or not, but the
	// cells that one batch wrote into one row are seen together.
	Scan(ctx context.Context, s Scan) iter.Seq2[Row, error]

	// Increment adds delta to the 8-byte big-endian signed integer in the cell (absent counts as 0) and returns the sum. A
	// cell of another length is ErrInvalid. Increments of one cell are linearizable: no two return the same number while
	// deltas are positive. An error that wraps ErrUnavailable may have counted, and so may a call that got its sum at a
	// second attempt: numbers may be left out.
	Increment(ctx context.Context, c Coord, delta int64) (int64, error)

	// CheckAndPut writes, for each check on its own, Value into the cell if the cell is what Expect says, or removes the
	// cell, and reports for each whether it did. Each check is atomic, and linearizable with Increments and other checks
	// of that cell; of a Put that races with it the timestamp decides as ever (see Versions). Checks of one call are
	// independent, may run at the same time, and must name different cells. After an error any of them may have taken
	// effect: read again.
	CheckAndPut(ctx context.Context, checks []Check) ([]bool, error)

	// Close waits for the calls under way and releases what the store holds. It is called once.
	Close() error
}

// RangeDeleter is what a Store may be besides: one that forgets many rows at little cost.
type RangeDeleter interface {
	// DeleteRange removes all cells of the rows of a range, whatever their timestamps. What was acknowledged before the
	// call began is gone for every Get and Scan that starts after it returned nil, also after a sudden end of the machine;
	// what is written meanwhile may stay or go, cell by cell. The space is given back soon. After an error some cells may
	// be gone; it may be called again.
	DeleteRange(ctx context.Context, table string, r Range) error
}

// Table names a table and its families. Splits, Retention and Log are wishes for CreateTable: a store that has no use
// for them leaves them aside, and Tables does not return them.
type Table struct {
	Name     string
	Families []string // sorted, at least one

	Splits    [][]byte      // first row keys, ascending, of parts that the table should be made of
	Retention time.Duration // how long cells are to be kept, by their timestamps; 0: for ever

	// Log says that the cells are large, compressed already, mostly written in the order of their keys, read back only
	// after a crash, and deleted soon: they are not to be compressed or rewritten. A store that grants the wish may answer
	// ErrInvalid to a batch for such tables and others.
	Log bool
}

// Coord is the address of a cell.
type Coord struct {
	Table     string
	Row       []byte
	Family    string
	Qualifier []byte
}

// Check is one conditional put, or removal.
type Check struct {
	Coord
	Expect []byte // empty: the cell must be absent, or hold no bytes; else it must hold exactly these
	Value  []byte
	Delete bool // remove the cell, whatever its timestamp; Expect is not empty then, and Value is
}

// Cell is one cell of a Row.
type Cell struct {
	Family    string
	Qualifier []byte
	Timestamp int64 // milliseconds since 1970
	Value     []byte
}

// Row is a row key and its cells, in order.
type Row struct {
	Key   []byte
	Cells []Cell
}

// Clone is the row in memory of its own, which stays valid when the iteration that it came from goes on.
func (r Row) Clone() Row {
	out := Row{bytes.Clone(r.Key), slices.Clone(r.Cells)}
	for i := range out.Cells {
		c := &out.Cells[i]
		c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
	}
	return out
}

// Column selects a family or one cell of it.
type Column struct {
	Family    string
	Qualifier []byte // nil: every qualifier of the family
}

// Get asks for rows by their exact keys.
type Get struct {
	Table   string
	Rows    [][]byte // strictly ascending, else ErrInvalid
	Columns []Column // empty: all
}

// Range is the row keys from Start (inclusive) to Stop (exclusive), none if Stop is not behind Start. An empty Start is
// the table's beginning, an empty Stop its end.
type Range struct {
	Start, Stop []byte
}

// Scan asks for the rows of some key ranges.
type Scan struct {
	Table   string
	Ranges  []Range   // ascending and disjoint, else ErrInvalid; empty: the whole table
	Columns []Column  // empty: all
	Filter  RowFilter // zero: every row
	Limit   int       // at most so many rows; 0: no limit
}

// RowFilter keeps some of a scan's rows by their keys, inside the scan: a rejected row is never decoded or sent.
//
// Match decides. Regexp, where not empty, is a Java regular expression over the key's bytes read as ISO-8859-1
// (flag DOTALL, to be found from the first byte), which matches at least all keys that Match keeps: a store that runs
// elsewhere evaluates it there and then asks Match for what comes back.
type RowFilter struct {
	Match  func(row []byte) bool
	Regexp string
}
