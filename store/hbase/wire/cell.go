package wire

import (
	"encoding/binary"
	"fmt"
)

// A cell block is cells one behind the other, each with its length in front (codec class KeyValueCodec):
//
//	+--------+-------------------------------------- n bytes ---------------------------------------+
//	| n      | keyLen | valueLen | rowLen | row | famLen | family | qualifier | timestamp | type | value |
//	| 4      | 4      | 4        | 2      | r   | 1      | f      | q         | 8         | 1    | v     |
//	+--------+--------+----------+-- key: keyLen = 12+r+f+q bytes ------------------------------+-------+
//
// All integers are big-endian. The length of the qualifier is what is left of the key. n is 8+keyLen+valueLen; a server
// may append tags behind the value, which are skipped.
const (
	cellPrefix   = 4                                  // n
	cellOverhead = cellPrefix + 4 + 4 + 2 + 1 + 8 + 1 // everything but row, family, qualifier and value
	keyOverhead  = 2 + 1 + 8 + 1
)

// Bounds of the parts of a cell. AppendCell panics beyond them; callers check what comes from outside.
const (
	MaxRow    = 1<<15 - 1
	MaxFamily = 1<<8 - 1
	// MaxCell bounds row, family, qualifier and value together.
	MaxCell = 1<<30 - 1
)

// LatestTimestamp as the timestamp of a put or delete stands for the server's clock.
const LatestTimestamp = 1<<63 - 1

// CellType says what a cell does.
type CellType byte

// Types of cells, named as in HBase.
const (
	CellPut                 CellType = 4
	CellDelete              CellType = 8  // one version: exactly this timestamp
	CellDeleteFamilyVersion CellType = 10 // one version of all columns of the family
	CellDeleteColumn        CellType = 12 // all versions up to this timestamp
	CellDeleteFamily        CellType = 14 // all versions of all columns of the family up to this timestamp
)

// CellSize is the number of bytes of a cell in a block, with its length.
func CellSize(row, family, qualifier, value int) int {
	return cellOverhead + row + family + qualifier + value
}

// AppendCell appends a cell to a block. It panics when a part is out of the bounds above.
func AppendCell(dst, row []byte, family string, qualifier []byte, timestamp int64, typ CellType, value []byte) []byte {
	size := CellSize(len(row), len(family), len(qualifier), len(value))
	if len(row) > MaxRow || len(family) > MaxFamily || size > MaxCell {
		panic(fmt.Sprintf("append cell: row of %d, family of %d, cell of %d bytes is out of bounds",
			len(row), len(family), size))
	}
	dst = reserve(dst, size)
	at := len(dst)
	dst = dst[:at+size]
	c := dst[at:]
	binary.BigEndian.PutUint32(c, uint32(size-cellPrefix))
	binary.BigEndian.PutUint32(c[4:], uint32(keyOverhead+len(row)+len(family)+len(qualifier)))
	binary.BigEndian.PutUint32(c[8:], uint32(len(value)))
	binary.BigEndian.PutUint16(c[12:], uint16(len(row)))
	n := 14 + copy(c[14:], row)
	c[n] = byte(len(family))
	n++
	n += copy(c[n:], family)
	n += copy(c[n:], qualifier)
	binary.BigEndian.PutUint64(c[n:], uint64(timestamp))
	c[n+8] = byte(typ)
	copy(c[n+9:], value)
	return dst
}

// reserve makes room for n more bytes, at least doubling what is too short.
func reserve(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	longer := make([]byte, len(dst), max(2*cap(dst), len(dst)+n))
	copy(longer, dst)
	return longer
}

// Cell is one cell; its slices point into the block it was read from.
type Cell struct {
	Row       []byte
	Family    []byte
	Qualifier []byte
	Timestamp int64
	Type      CellType
	Value     []byte
}

// CellIter walks a cell block without allocating:
//
//	it := NewCellIter(block)
//	for it.Next() {
//		use(it.Cell.Row, it.Cell.Value)
//	}
//	if err := it.Err(); err != nil { ... }
type CellIter struct {
	// Cell is the cell Next stopped at.
	Cell Cell

	block []byte
	pos   int
	count int
	err   error
}

// NewCellIter walks the cells of block.
func NewCellIter(block []byte) CellIter { return CellIter{block: block} }

// Next moves to the next cell; false means the end, or a fault that Err tells.
func (it *CellIter) Next() bool {
	kv, ok := it.peek()
	if !ok || !it.keyValue(kv) {
		return false
	}
	it.pos += cellPrefix + len(kv)
	it.count++
	return true
}

// Skip moves over the next n cells, of which it reads nothing but the lengths, and returns them as a block of their
// own. false means that there are not so many, or a fault that Err tells.
func (it *CellIter) Skip(n int) (block []byte, ok bool) {
	start := it.pos
	for range n {
		kv, ok := it.peek()
		if !ok {
			return nil, false
		}
		it.pos += cellPrefix + len(kv)
		it.count++
	}
	return it.block[start:it.pos:it.pos], true
}

// peek is the bytes of the next cell without its length.
func (it *CellIter) peek() (kv []byte, ok bool) {
	b := it.block[it.pos:]
	if len(b) == 0 || it.err != nil {
		return nil, false
	}
	if len(b) < cellPrefix {
		return nil, it.fail("length cut off")
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)-cellPrefix) {
		return nil, it.fail("cell is longer than the block")
	}
	return b[cellPrefix : cellPrefix+int(n)], true
}

func (it *CellIter) keyValue(kv []byte) bool {
	if len(kv) < cellOverhead-cellPrefix {
		return it.fail("cell is too short")
	}
	keyLen, valueLen := uint64(binary.BigEndian.Uint32(kv)), uint64(binary.BigEndian.Uint32(kv[4:]))
	if 8+keyLen+valueLen > uint64(len(kv)) {
		return it.fail("key and value are longer than the cell")
	}
	if keyLen < keyOverhead {
		return it.fail("key is too short")
	}
	key := kv[8 : 8+keyLen]
	row := int(binary.BigEndian.Uint16(key))
	if row > MaxRow || row+keyOverhead > len(key) {
		return it.fail("row is longer than the key")
	}
	family := 3 + row
	qualifier := family + int(key[2+row])
	end := len(key) - 9
	if qualifier > end {
		return it.fail("family is longer than the key")
	}
	c := &it.Cell
	c.Row = key[2 : 2+row : 2+row]
	c.Family = key[family:qualifier:qualifier]
	c.Qualifier = key[qualifier:end:end]
	c.Timestamp = int64(binary.BigEndian.Uint64(key[end:]))
	c.Type = CellType(key[end+8])
	c.Value = kv[8+keyLen : 8+keyLen+valueLen : 8+keyLen+valueLen]
	return true
}

// Count is the number of cells Next and Skip have passed.
func (it *CellIter) Count() int { return it.count }

// Rest is the part of the block behind the last cell that was passed.
func (it *CellIter) Rest() []byte { return it.block[it.pos:] }

// Err is nil when all cells handed out so far were well formed.
func (it *CellIter) Err() error { return it.err }

// shown is how many bytes of a cell that cannot be read its error shows.
const shown = 64

func (it *CellIter) fail(what string) bool {
	rest := it.block[it.pos:]
	it.err = fmt.Errorf("parse cell block: %w: %s (cell %d at byte %d of %d, which begins %x)",
		ErrMalformed, what, it.count, it.pos, len(it.block), rest[:min(len(rest), shown)])
	return false
}
