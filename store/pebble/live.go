package pebble

import (
	"bytes"
	"slices"
	"sort"

	lsm "github.com/cockroachdb/pebble/v2"
)

// liveChunk is how many cells a chunk of a live set holds at most: few enough to shift them for one more.
const liveChunk = 512

// liveSet knows the cells of the tree of the log tables, so that a delete need not read the cell that it removes, which
// is large, and so that whole ranges without a cell can be found. It takes some 100 bytes for a cell. Cells lie in
// chunks, sorted, and are found by two binary searches. It is guarded by the tree's writeMu.
type liveSet struct {
	chunks [][]liveCell // none empty
	tail   dead         // behind the last cell
	bytes  int64        // of the cells' keys and values
	freed  int64        // bytes of all cells deleted or replaced so far
}

type liveCell struct {
	key       []byte
	timestamp int64
	size      int64 // bytes of key and value
	dead      dead  // between this cell and the one before
}

// dead is what is known of deleted cells that the tree still holds.
type dead struct {
	bytes int64
	from  []byte // the key of the first of them, or a bare prefix that is not above it
}

// at finds the place of the first cell that is not below key; of a chunk that does not exist if there is none.
func (l *liveSet) at(key []byte) (chunk, i int) {
	chunk = sort.Search(len(l.chunks), func(i int) bool {
		c := l.chunks[i]
		return compareKeys(c[len(c)-1].key, key) >= 0
	})
	if chunk < len(l.chunks) {
		c := l.chunks[chunk]
		i = sort.Search(len(c), func(i int) bool { return compareKeys(c[i].key, key) >= 0 })
	}
	return chunk, i
}

// find returns the cell with a key, nil if there is none.
func (l *liveSet) find(key []byte) *liveCell {
	chunk, i := l.at(key)
	if chunk == len(l.chunks) || !bytes.Equal(l.chunks[chunk][i].key, key) {
		return nil
	}
	return &l.chunks[chunk][i]
}

// timestamp is that of the cell with a key, nil if there is none.
func (l *liveSet) timestamp(key []byte) *int64 {
	if c := l.find(key); c != nil {
		return &c.timestamp
	}
	return nil
}

// deadBefore is that of the gap in which key lies, or which the cell with this key ends.
func (l *liveSet) deadBefore(key []byte) *dead {
	chunk, i := l.at(key)
	if chunk == len(l.chunks) {
		return &l.tail
	}
	return &l.chunks[chunk][i].dead
}

// note takes over what a batch of puts and deletes of cells does.
func (l *liveSet) note(b *lsm.Batch) error {
	for r := b.Reader(); ; {
		kind, key, value, ok, err := r.Next()
		if err != nil || !ok {
			return classify(err)
		}
		if kind != lsm.InternalKeyKindSet {
			l.remove(key)
			continue
		}
		h, err := parseHeader(value)
		if err != nil {
			return err
		}
		l.put(key, h.timestamp, int64(len(key)+len(value)))
	}
}

func (l *liveSet) put(key []byte, timestamp, size int64) {
	l.bytes += size
	chunk, i := l.at(key)
	if chunk < len(l.chunks) && bytes.Equal(l.chunks[chunk][i].key, key) {
		c := &l.chunks[chunk][i]
		l.bytes -= c.size
		l.freed += c.size
		c.timestamp, c.size = timestamp, size
		return
	}
	cell := liveCell{key: bytes.Clone(key), timestamp: timestamp, size: size}
	if d := l.deadBefore(key); d.bytes > 0 && compareKeys(d.from, key) <= 0 {
		cell.dead, *d = *d, dead{} // though some of it may lie behind the new cell
	}
	if chunk == len(l.chunks) {
		if chunk == 0 || len(l.chunks[chunk-1]) >= liveChunk {
			l.chunks = append(l.chunks, make([]liveCell, 0, liveChunk))
		} else {
			chunk--
		}
		l.chunks[chunk] = append(l.chunks[chunk], cell)
		return
	}
	c := slices.Insert(l.chunks[chunk], i, cell)
	if len(c) <= liveChunk {
		l.chunks[chunk] = c
		return
	}
	half := len(c) / 2
	l.chunks[chunk] = slices.Clone(c[:half])
	l.chunks = slices.Insert(l.chunks, chunk+1, slices.Clone(c[half:]))
}

func (l *liveSet) remove(key []byte) {
	chunk, i := l.at(key)
	if chunk == len(l.chunks) || !bytes.Equal(l.chunks[chunk][i].key, key) {
		return
	}
	gone := l.chunks[chunk][i]
	l.bytes -= gone.size
	l.freed += gone.size
	l.chunks[chunk] = slices.Delete(l.chunks[chunk], i, i+1)
	if len(l.chunks[chunk]) == 0 {
		l.chunks = slices.Delete(l.chunks, chunk, chunk+1)
	}
	d := l.deadBefore(gone.key)
	d.bytes += gone.dead.bytes + gone.size
	if d.from = gone.key; gone.dead.bytes > 0 {
		d.from = gone.dead.from
	}
}

// gap is a range of rows without a cell, between two keys that are bare prefixes.
type gap struct {
	start, end []byte
	dead       int64 // bytes of deleted cells in it
}

// gaps lists the ranges without a cell that have at least so many bytes of deleted cells.
func (l *liveSet) gaps(atLeast int64) []gap {
	var gaps []gap
	var last []byte // the prefix of the cell before
	add := func(d *dead, end []byte) {
		if d.bytes < atLeast {
			return
		}
		start := bytes.Clone(d.from[:splitKey(d.from)])
		if bytes.Equal(start, last) { // the row goes on from a cell that is there
			start = appendImmediateSuccessor(nil, last)
		}
		if compareKeys(start, end) < 0 {
			gaps = append(gaps, gap{start: start, end: bytes.Clone(end), dead: d.bytes})
		}
	}
	for _, chunk := range l.chunks {
		for i := range chunk {
			c := &chunk[i]
			prefix := c.key[:splitKey(c.key)]
			add(&c.dead, prefix)
			last = prefix
		}
	}
	add(&l.tail, appendPrefix(nil, maxTable+1, nil))
	return gaps
}

// empty says whether a gap has still no cell.
func (l *liveSet) empty(g gap) bool {
	chunk, i := l.at(g.start)
	return chunk == len(l.chunks) || compareKeys(l.chunks[chunk][i].key, g.end) >= 0
}

// cut takes note that the tree no longer holds the deleted cells of a gap, which is empty. If the cell that ended it is
// gone meanwhile, deleted ones are left behind it.
func (l *liveSet) cut(g gap) {
	d := l.deadBefore(g.end)
	d.bytes -= g.dead
	d.from = g.end
}

// within lists the keys of the cells between two keys.
func (l *liveSet) within(start, end []byte) [][]byte {
	var keys [][]byte
	for chunk, i := l.at(start); chunk < len(l.chunks); chunk, i = chunk+1, 0 {
		for ; i < len(l.chunks[chunk]); i++ {
			key := l.chunks[chunk][i].key
			if compareKeys(key, end) >= 0 {
				return keys
			}
			keys = append(keys, key)
		}
	}
	return keys
}
