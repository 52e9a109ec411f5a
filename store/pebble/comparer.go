package pebble

import (
	"bytes"
	"fmt"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

// comparerName is recorded in every file of the tree; another order of keys needs another name.
const comparerName = "promtsd.rows.v2"

// keyBundle is how many row prefixes of a block share one restart of their prefix compression. It is part of the name
// of the key schema, which is recorded in every table file.
const keyBundle = 16

// newComparer describes the keys of key.go to the tree. The prefix of a key is its row, so Bloom filters answer for
// whole rows and NextPrefix goes to the next row.
func newComparer() *lsm.Comparer {
	return &lsm.Comparer{
		Name:                 comparerName,
		Split:                splitKey,
		Compare:              compareKeys,
		Equal:                bytes.Equal, // trailers are canonical, so equal in order means equal in bytes
		ComparePointSuffixes: compareSuffixes,
		CompareRangeSuffixes: compareSuffixes,
		AbbreviatedKey:       abbreviateKey,
		Separator:            appendSeparator,
		Successor:            appendSuccessor,
		ImmediateSuccessor:   appendImmediateSuccessor,
		ValidateKey:          validateKey,
		FormatKey:            func(key []byte) fmt.Formatter { return formatted(formatKey(key)) },
		FormatValue:          func(_, value []byte) fmt.Formatter { return formatted(formatValue(value)) },
	}
}

// newKeySchema stores rows and suffixes in a column each; rows compress by their common prefixes.
func newKeySchema(c *lsm.Comparer) colblk.KeySchema { return colblk.DefaultKeySchema(c, keyBundle) }

func abbreviateKey(key []byte) uint64 {
	return lsm.DefaultComparer.AbbreviatedKey(key[:splitKey(key)])
}

// appendSeparator appends a key k, a <= k < b, as short as it can: between two rows a bare prefix with the shortest row
// that separates them; between two cells of a row it is a.
func appendSeparator(dst, a, b []byte) []byte {
	aRow, aok := rowPart(a)
	bRow, bok := rowPart(b)
	if !aok || !bok || bytes.Equal(aRow, bRow) {
		return append(dst, a...)
	}
	start := len(dst)
	dst = lsm.DefaultComparer.Separator(dst, aRow, bRow)
	if bytes.Equal(dst[start:], aRow) {
		return append(dst[:start], a...)
	}
	return append(dst, sentinel)
}

// appendSuccessor appends a key k >= a, as short as it can.
func appendSuccessor(dst, a []byte) []byte {
	if len(a) == 0 {
		return append(dst, sentinel)
	}
	row, ok := rowPart(a)
	if !ok {
		return append(dst, a...)
	}
	start := len(dst)
	dst = lsm.DefaultComparer.Successor(dst, row)
	if bytes.Equal(dst[start:], row) {
		return append(dst[:start], a...)
	}
	return append(dst, sentinel)
}

// appendImmediateSuccessor appends the smallest prefix above a: that of the row with a 0x00 behind it.
func appendImmediateSuccessor(dst, a []byte) []byte { return append(append(dst, a...), sentinel) }

// rowPart is the prefix of a key (table and row) without the sentinel; false where there is nothing to shorten.
func rowPart(key []byte) ([]byte, bool) {
	n := splitKey(key)
	if n < 2 || key[n-1] != sentinel {
		return nil, false
	}
	return key[:n-1], true
}

// validateKey refuses what is neither a cell's key nor a bare prefix. A key may lack leading bytes of its prefix.
func validateKey(key []byte) error {
	n := splitKey(key)
	if n > 0 && key[n-1] != sentinel {
		return fmt.Errorf("prefix of key %x does not end in its sentinel", clip(key))
	}
	return nil
}

type formatted string

// Format writes the text as it is, whatever the verb.
func (f formatted) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(f)) }
