package pebble

import (
	"crypto/sha256"
)

// A key names a cell of its row by the family and by the column, which is the qualifier itself, if that is short, and
// else a hash of it, of 17 bytes; the qualifier then stands in the value:
//
//	 0..16 bytes             9 bytes                     8 bytes
//	+-----------+           +---------------------------+---------------------------------+
//	| qualifier |     or    | the qualifier's first 9   | SHA-256 of secret, qualifier    |
//	+-----------+           +---------------------------+---------------------------------+
//
// The length tells the two apart, and the qualifier alone decides: a cell has one key, whatever encoding its value
// has. The cells of a row lie in the order of their qualifiers in most cases, thanks to the first bytes; else the
// reader sorts.
//
// Two qualifiers of one row that share their first 9 bytes and their hash would be one cell. By chance that is one in
// 2^64 for each pair with equal first bytes: 10,000 such cells in one row, far more than promtsd writes, make it one in
// 10^11. By intent it would take qualifiers of the attacker's choice, which whoever may send samples has; so the hash
// begins with a secret of 16 random bytes that each store draws when it is made, and that never leaves it: without it
// collisions cannot be searched for, and 64 bits are enough.
const (
	maxPlain  = 16
	headLen   = 9
	hashLen   = 8
	hashedLen = headLen + hashLen // and nothing else has this length
	secretLen = 16
)

// columner makes columns of qualifiers. It is for one goroutine.
type columner struct {
	secret [secretLen]byte
	buf    []byte
}

// column returns the column of a qualifier: the qualifier or something that is valid until the next call.
func (c *columner) column(qualifier []byte) []byte {
	if len(qualifier) <= maxPlain {
		return qualifier
	}
	c.buf = append(append(c.buf[:0], c.secret[:]...), qualifier...)
	sum := sha256.Sum256(c.buf)
	c.buf = append(append(c.buf[:0], qualifier[:headLen]...), sum[:hashLen]...)
	return c.buf
}

// isHashed says whether a column stands for a qualifier that is found in the value.
func isHashed(column []byte) bool { return len(column) == hashedLen }

// columnLen is the length of the column of a qualifier of n bytes.
func columnLen(n int) int {
	if n <= maxPlain {
		return n
	}
	return hashedLen
}
