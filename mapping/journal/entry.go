// Package journal keeps the requests that promtsd has accepted until their samples are in the data table: one durable
// cell for each, written before the request is acknowledged, read back only after a crash.
//
// Every promtsd that writes is a writer with an ID of its own, a lease on it, and entries numbered from 1:
//
//	journal table:  row writer ID (8 bytes) | number (8 bytes) | family "p" | empty qualifier | value: an Entry
//	own table:      row 'w' | writer ID (8 bytes)              | family "p" | qualifier "lease" | value: a lease
//
// The lease also says up to which number all samples are in the data table; entries below are of no more use.
package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/promtsd/promtsd/mapping"
)

// ID names a writer. It is random, and never used again.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Entry is an accepted request. The terms on which it was accepted are kept with it: its replay must take the same
// samples, whatever the flags and the clock say then.
type Entry struct {
	Form    byte  // of Body; what the numbers mean is the business of those who write and read them
	Arrived int64 // when, in milliseconds since 1970

	Latest           int64 // samples after this time were refused
	RefuseInfinities bool
	NeedMetricName   bool
	MaxLabels        int
	MaxLabelName     int
	MaxLabelValue    int

	Body []byte // as it came
}

// The value of an entry's cell:
//
//	+---------+------+-------+---------+--------+--------+------+-------+------+----------+
//	| version | form | flags | arrived | latest | labels | name | value | body | checksum |
//	| 1       | 1    | 1     | varint  | varint | uvarint x 3           |      | 4        |
//	+---------+------+-------+---------+--------+--------+------+-------+------+----------+
//
// The checksum is CRC-32C over all before it, big endian.
const (
	entryVersion = 1

	flagInfinities = 1 << 0
	flagMetricName = 1 << 1

	checksumBytes = 4
)

// AppendEntry appends the entry's cell value to dst.
func AppendEntry(dst []byte, e *Entry) []byte {
	start := len(dst)
	var flags byte
	if e.RefuseInfinities {
		flags |= flagInfinities
	}
	if e.NeedMetricName {
		flags |= flagMetricName
	}
	dst = append(dst, entryVersion, e.Form, flags)
	dst = binary.AppendVarint(dst, e.Arrived)
	dst = binary.AppendVarint(dst, e.Latest)
	for _, n := range []int{e.MaxLabels, e.MaxLabelName, e.MaxLabelValue} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = append(dst, e.Body...)
	return binary.BigEndian.AppendUint32(dst, checksum(dst[start:]))
}

// ParseEntry reads an entry's cell value. The error wraps mapping.ErrCorrupt. Body points into b.
func ParseEntry(b []byte) (Entry, error) {
	if len(b) < 3+checksumBytes {
		return Entry{}, fmt.Errorf("%w: %d bytes are too few", mapping.ErrCorrupt, len(b))
	}
	content := b[:len(b)-checksumBytes]
	if have, want := checksum(content), binary.BigEndian.Uint32(b[len(content):]); have != want {
		return Entry{}, fmt.Errorf("%w: its %d bytes have the checksum %08x, written was %08x",
			mapping.ErrCorrupt, len(content), have, want)
	}
	if content[0] != entryVersion {
		return Entry{}, fmt.Errorf("%w: version %d is not known: a newer promtsd wrote it", mapping.ErrCorrupt, content[0])
	}
	e := Entry{Form: content[1], RefuseInfinities: content[2]&flagInfinities != 0, NeedMetricName: content[2]&flagMetricName != 0}
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
		return Entry{}, fmt.Errorf("%w: its head is cut", mapping.ErrCorrupt)
	}
	e.Body = rest
	return e, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
