package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/promtsd/promtsd/store"
)

// A key of the LSM tree is the address of one cell:
//
//	 1 byte   1..32767      0x00     1 byte     0..2^24         1 or 5
//	+-------+-----------+----------+--------+---------------+-------------+
//	| table | row       | sentinel | family | qualifier     | trailer     |
//	+-------+-----------+----------+--------+---------------+-------------+
//	|<------ prefix --------------->|<----- suffix, n bytes ------------->|
//
// The trailer gives n, the length of the suffix with the trailer itself, so that a key is taken apart from its end and
// the row needs no escape:
//
//	n <= 254   +---+         n > 254   +---------------------+------+
//	           | n |                   | n, big endian       | 0xff |
//	           +---+                   +---------------------+------+
//
// A bare prefix (the lower bound of a row) ends in the sentinel, which read as a trailer says that there is no suffix.
// Row keys compare as raw bytes: appending 0x00 to two byte strings keeps their order, also where one is a prefix of
// the other. Suffixes compare without their trailers. Families have ids in the order of their names, so the order of
// keys is that of (table, row, family, qualifier).
const (
	sentinel     = 0x00
	longTrailer  = 0xff
	maxShort     = 254                        // the longest suffix with a trailer of one byte
	minLong      = 1 + (maxShort - 1) + 5     // the shortest with one of five: a qualifier one byte too long for maxShort
	maxSuffix    = 1 + store.MaxQualifier + 5 // the longest suffix
	catalogTable = 0                          // the table id of the store's own rows
	maxTable     = 254                        // the last table id: maxTable+1 still serves as an upper bound
)

// cellKey is a key taken apart; its slices point into the key.
type cellKey struct {
	table     byte
	row       []byte
	family    byte
	qualifier []byte
}

// prefixLen is the length of the prefix of a row's keys.
func prefixLen(row []byte) int { return 1 + len(row) + 1 }

// suffixLen is the length of the suffix for a qualifier, trailer included.
func suffixLen(qualifier []byte) int {
	if n := 1 + len(qualifier) + 1; n <= maxShort {
		return n
	}
	return 1 + len(qualifier) + 5
}

// appendPrefix appends the bare prefix of a row, which sorts before all cells of the row. An empty row stands for the
// beginning of the table.
func appendPrefix(dst []byte, table byte, row []byte) []byte {
	dst = append(dst, table)
	dst = append(dst, row...)
	return append(dst, sentinel)
}

// appendSuffix appends the suffix of a cell.
func appendSuffix(dst []byte, family byte, qualifier []byte) []byte {
	dst = append(dst, family)
	dst = append(dst, qualifier...)
	n := suffixLen(qualifier)
	if n <= maxShort {
		return append(dst, byte(n))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	return append(dst, longTrailer)
}

// appendKey appends the key of a cell.
func appendKey(dst []byte, table byte, row []byte, family byte, qualifier []byte) []byte {
	return appendSuffix(appendPrefix(dst, table, row), family, qualifier)
}

// splitKey returns the length of a key's prefix. It takes any bytes: what has no well-formed suffix is all prefix.
func splitKey(key []byte) int {
	end := len(key)
	if end == 0 {
		return 0
	}
	n := int(key[end-1])
	if n == longTrailer {
		if end < minLong {
			return end
		}
		long := binary.BigEndian.Uint32(key[end-5:])
		if long < minLong || long > maxSuffix || int(long) > end {
			return end
		}
		n = int(long)
	} else if n == 1 || n > end {
		return end
	}
	return end - n
}

// suffixBody is a suffix without its trailer; empty for the empty suffix.
func suffixBody(suffix []byte) []byte {
	switch {
	case len(suffix) == 0:
		return nil
	case suffix[len(suffix)-1] == longTrailer && len(suffix) >= minLong:
		return suffix[:len(suffix)-5]
	default:
		return suffix[:len(suffix)-1]
	}
}

// parseKey takes a cell's key apart.
func parseKey(key []byte) (cellKey, error) {
	n := splitKey(key)
	suffix := suffixBody(key[n:])
	if n < 2 || key[n-1] != sentinel || len(suffix) == 0 {
		return cellKey{}, fmt.Errorf("%w: %x is not the key of a cell", store.ErrCorrupt, clip(key))
	}
	return cellKey{table: key[0], row: key[1 : n-1], family: suffix[0], qualifier: suffix[1:]}, nil
}

// formatKey writes a key for people.
func formatKey(key []byte) string {
	if k, err := parseKey(key); err == nil {
		return fmt.Sprintf("%d/%x/%d:%x", k.table, k.row, k.family, k.qualifier)
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
