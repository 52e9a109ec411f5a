// Package journal keeps the requests that promtsd has accepted until their samples are in the data table: one durable
// row for each, written before the request is acknowledged, read back only after a crash.
//
// Every promtsd that writes is a writer with an ID of its own, a lease on it, and entries numbered from 1:
//
//	journal table:  row writer ID (8 bytes) | number (8 bytes) | family "p" | qualifier: piece | value: of an Entry
//	system table:   row 'w' | writer ID (8 bytes)              | family "p" | qualifier "lease" | value: a lease
//
// The lease also says up to which number all samples are in the data table; entries below are of no more use. An entry
// that cannot be replayed goes into quarantine, which is drawn in quarantine.go.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// ID names a writer. It is random, and never used again.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Entry is an accepted request. The terms on which it was accepted are kept with it: its replay must take the same
// samples, whatever the flags and the clock say then.
type Entry struct {
	Encoding byte  // of Body; what the numbers mean is the business of those who write and read them
	Arrived  int64 // when, in milliseconds since 1970

	Latest           int64 // samples after this time were refused
	RefuseInfinities bool
	NeedMetricName   bool
	MaxLabels        int
	MaxLabelName     int
	MaxLabelValue    int

	// UIDsDamaged says that series were refused because cells of the UID table could not be read, and their sender was
	// told: then a replay that meets such need not mind.
	UIDsDamaged bool

	Body []byte // as it came
}

// The value of an entry:
//
//	+---------+----------+-------+---------+--------+--------+------+-------+------+----------+
//	| version | encoding | flags | arrived | latest | labels | name | value | body | checksum |
//	| 1       | 1        | 1     | varint  | varint | uvarint x 3           |      | 4        |
//	+---------+----------+-------+---------+--------+--------+------+-------+------+----------+
//
// The checksum is CRC-32C over all before it, big endian, and stays what and where it is in every version.
const (
	entryVersion = 1

	flagInfinities  = 1 << 0
	flagMetricName  = 1 << 1
	flagUIDsDamaged = 1 << 2
	knownFlags      = flagInfinities | flagMetricName | flagUIDsDamaged

	checksumBytes = 4
)

// AppendEntry appends the entry's value to dst.
func AppendEntry(dst []byte, e *Entry) []byte {
	start := len(dst)
	var flags byte
	if e.RefuseInfinities {
		flags |= flagInfinities
	}
	if e.NeedMetricName {
		flags |= flagMetricName
	}
	if e.UIDsDamaged {
		flags |= flagUIDsDamaged
	}
	dst = append(dst, entryVersion, e.Encoding, flags)
	dst = binary.AppendVarint(dst, e.Arrived)
	dst = binary.AppendVarint(dst, e.Latest)
	for _, n := range []int{e.MaxLabels, e.MaxLabelName, e.MaxLabelValue} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = append(dst, e.Body...)
	return binary.BigEndian.AppendUint32(dst, checksum(dst[start:]))
}

// ParseEntry reads an entry's value. The error is an *EntryError, Damaged or Newer. Body points into b.
func ParseEntry(b []byte) (Entry, error) {
	if len(b) < 3+checksumBytes {
		return Entry{}, damaged("%d bytes are too few", len(b))
	}
	content := b[:len(b)-checksumBytes]
	if have, want := checksum(content), binary.BigEndian.Uint32(b[len(content):]); have != want {
		return Entry{}, damaged("its %d bytes have the checksum %08x, written was %08x", len(content), have, want)
	}
	if version, flags := content[0], content[2]; version != entryVersion || flags&^knownFlags != 0 {
		return Entry{}, &EntryError{Newer, fmt.Errorf("%w: version %d with flags %#x is not known", mapping.ErrNewer, version,
			flags)}
	}
	e := Entry{
		Encoding:         content[1],
		RefuseInfinities: content[2]&flagInfinities != 0, NeedMetricName: content[2]&flagMetricName != 0,
		UIDsDamaged: content[2]&flagUIDsDamaged != 0,
	}
	rest := content[3:]
	short := false
	for _, at := range []*int64{&e.Arrived, &e.Latest} {
		v, n := binary.Varint(rest)
		short = short || n <= 0
		*at, rest = v, rest[max(n, 0):]
	}
	for _, at := range []*int{&e.MaxLabels, &e.MaxLabelName, &e.MaxLabelValue} {
		v, n := binary.Uvarint(rest)
		short = short || n <= 0
		*at, rest = int(v), rest[max(n, 0):]
	}
	if short {
		return Entry{}, damaged("its head is cut")
	}
	e.Body = rest
	return e, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func damaged(format string, args ...any) error {
	return &EntryError{Damaged, fmt.Errorf("%w: %w", mapping.ErrCorrupt, fmt.Errorf(format, args...))}
}

// A value is cut into pieces, because HBase refuses cells of more than 10 MiB. Each is a cell of the entry's row:
//
//	piece 0: empty qualifier | piece 1: qualifier 00 01 | piece 2: qualifier 00 02 | ...
//
// Most entries have piece 0 only. It is written last: a row that is too long to be written at once may end up with some
// of the others, and then was never acknowledged.
const (
	pieceBytes = 4 << 20
	maxBytes   = 1 << 30 // of an entry
)

func pieceQualifier(piece int) []byte {
	if piece == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint16(nil, uint16(piece))
}

// pieceOf is the number of the piece in a cell, -1 if the cell is none of an entry's.
func pieceOf(c store.Cell) int {
	switch piece := 0; len(c.Qualifier) {
	case 2:
		piece = int(binary.BigEndian.Uint16(c.Qualifier))
		if piece > 0 {
			return piece
		}
	case 0:
		return 0
	}
	return -1
}

// pieces is the number of pieces of a value.
func pieces(value []byte) int { return max(1, (len(value)+pieceBytes-1)/pieceBytes) }

// putPieces adds an entry's cells to a batch.
func putPieces(b *store.Batch, table string, row []byte, timestamp int64, value []byte) {
	for piece := pieces(value) - 1; piece >= 0; piece-- {
		from := piece * pieceBytes
		b.Put(table, row, catalog.FamilySystem, pieceQualifier(piece), timestamp, value[from:min(len(value), from+pieceBytes)])
	}
}

// written is what must be known of entries to delete them. It is safe for concurrent use.
type written struct {
	long sync.Map // number -> pieces, of those that have more than one
}

func (w *written) note(number uint64, pieces int) {
	if pieces > 1 {
		w.long.Store(number, pieces)
	}
}

func (w *written) pieces(number uint64) int {
	if n, ok := w.long.Load(number); ok {
		return n.(int)
	}
	return 1
}

// errUnfinished says that an entry was not written to its end, and hence not acknowledged.
var errUnfinished = errors.New("it was never written to its end, and its sender was never told that it was")

// join puts the pieces of an entry together; value is that of the only one, or in the memory of buf. The error is an
// *EntryError, or errUnfinished.
func join(buf []byte, cells []store.Cell) (value []byte, err error) {
	for i, c := range cells {
		switch piece := pieceOf(c); {
		case piece < 0:
			return nil, damaged("a cell of its row with the qualifier %x is none of an entry's", c.Qualifier)
		case i == 0 && piece > 0:
			return nil, errUnfinished
		case piece != i:
			return nil, damaged("piece %d of its value is missing", i)
		}
	}
	if len(cells) == 1 {
		return cells[0].Value, nil
	}
	buf = buf[:0]
	for _, c := range cells {
		buf = append(buf, c.Value...)
	}
	return buf, nil
}
