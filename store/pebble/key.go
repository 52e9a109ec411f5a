package pebble

import (
	"bytes"
	"fmt"

	"github.com/promtsd/promtsd/store"
)

// A key of the LSM tree is the address of one cell:
//
//	 1 byte   1..32767      0x00     1 byte     0..17         1 byte
//	+-------+-----------+----------+--------+---------------+---------+
//	| table | row       | sentinel | family | column        | trailer |
//	+-------+-----------+----------+--------+---------------+---------+
//	|<------ prefix --------------->|<----- suffix, n bytes --------->|
//
// The column is the qualifier, or stands for a long one: see column.go. The trailer is n, the length of the suffix with
// the trailer itself, so that a key is taken apart from its end and the row needs no escape.
//
// A bare prefix (the lower bound of a row) ends in the sentinel, which read as a trailer says that there is no suffix.
// Row keys compare as raw bytes: appending 0x00 to two byte strings keeps their order, also where one is a prefix of
// the other. Suffixes compare without their trailers. Families have ids in the order of their names, so the order of
// keys is that of (table, row, family, column).
const (
	sentinel     = 0x00
	maxSuffix    = 1 + hashedLen + 1 // the longest suffix
	catalogTable = 0                 // the table id of the store's own rows
	maxTable     = 254               // the last table id: maxTable+1 still serves as an upper bound
)

// cellKey is a key taken apart; its slices point into the key.
type cellKey struct {
	table  byte
	row    []byte
	family byte
	column []byte
}

// prefixLen is the length of the prefix of a row's keys.
func prefixLen(row []byte) int { return 1 + len(row) + 1 }

// suffixLen is the length of the suffix for a column of n bytes, trailer included.
func suffixLen(n int) int { return 1 + n + 1 }

// appendPrefix appends the bare prefix of a row, which sorts before all cells of the row. An empty row stands for the
// beginning of the table.
func appendPrefix(dst []byte, table byte, row []byte) []byte {
	dst = append(dst, table)
	dst = append(dst, row...)
	return append(dst, sentinel)
}

// appendSuffix appends the suffix of a cell.
func appendSuffix(dst []byte, family byte, column []byte) []byte {
	dst = append(dst, family)
	dst = append(dst, column...)
	return append(dst, byte(suffixLen(len(column))))
}

// appendKey appends the key of a cell.
func appendKey(dst []byte, table byte, row []byte, family byte, column []byte) []byte {
	return appendSuffix(appendPrefix(dst, table, row), family, column)
}

// splitKey returns the length of a key's prefix. It takes any bytes: what has no well-formed suffix is all prefix.
func splitKey(key []byte) int {
	end := len(key)
	if end == 0 {
		return 0
	}
	n := int(key[end-1])
	if n == 1 || n > maxSuffix || n > end {
		return end
	}
	return end - n
}

// suffixBody is a suffix without its trailer; empty for the empty suffix.
func suffixBody(suffix []byte) []byte {
	if len(suffix) == 0 {
		return nil
	}
	return suffix[:len(suffix)-1]
}

// parseKey takes a cell's key apart.
func parseKey(key []byte) (cellKey, error) {
	n := splitKey(key)
	suffix := suffixBody(key[n:])
	if n < 2 || key[n-1] != sentinel || len(suffix) == 0 {
		return cellKey{}, fmt.Errorf("%w: %x is not the key of a cell", store.ErrCorrupt, clip(key))
	}
	return cellKey{table: key[0], row: key[1 : n-1], family: suffix[0], column: suffix[1:]}, nil
}

// formatKey writes a key for people.
func formatKey(key []byte) string {
	if k, err := parseKey(key); err == nil {
		return fmt.Sprintf("%d/%x/%d:%x", k.table, k.row, k.family, k.column)
	}
	if n := len(key); n >= 2 && splitKey(key) == n && key[n-1] == sentinel {
		return fmt.Sprintf("%d/%x/", key[0], key[1:n-1])
	}
	return fmt.Sprintf("?%x", key)
}

// clip bounds what an error message shows of a key.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }

func compareKeys(a, b []byte) int {
	an, bn := splitKey(a), splitKey(b)
	if c := bytes.Compare(a[:an], b[:bn]); c != 0 {
		return c
	}
	return compareSuffixes(a[an:], b[bn:])
}

// compareSuffixes orders what stands behind equal prefixes; no suffix comes first.
func compareSuffixes(a, b []byte) int { return bytes.Compare(suffixBody(a), suffixBody(b)) }
