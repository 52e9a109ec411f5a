// Package mapping holds the OpenTSDB schema as pure functions over bytes: schema widths, UIDs, TSUIDs, row keys, salt,
// qualifiers, values, cells, names. It does no I/O; its sub-packages do (uid assigns UIDs, index keeps the series
// index, ingest is the write path).
//
// All integers in keys, qualifiers and values are big-endian. Times are milliseconds since 1970 unless a name says base
// time, which is seconds, a multiple of 3600.
package mapping

import (
	"errors"
	"fmt"
)

// ErrInvalid marks data that the schema cannot hold, or a setting it does not have: whoever sent it must change it.
var ErrInvalid = errors.New("invalid")

// ErrCorrupt marks stored bytes that the schema does not allow.
var ErrCorrupt = errors.New("corrupt")

// ErrNewer marks stored bytes that this version cannot read, and a later one wrote.
var ErrNewer = errors.New("a newer promtsd wrote it")

// Kind is the kind of a name that a UID stands for.
type Kind uint8

// The three kinds.
const (
	Metric Kind = iota
	Tagk
	Tagv
)

// String is the kind's qualifier in the UID table.
func (k Kind) String() string { return [...]string{"metrics", "tagk", "tagv"}[k] }

// UID is a unique id, 1 to 256^width-1. 0 is never assigned.
type UID uint64

// Tag is a tagk and tagv UID pair.
type Tag struct{ Key, Value UID }

// Schema is what shapes the bytes of a set of tables. It is recorded when the tables are made and never changes.
type Schema struct {
	MetricWidth int // bytes of a metric UID, 1..8; OpenTSDB's default is 3
	TagkWidth   int // bytes of a tagk UID, 1..8
	TagvWidth   int // bytes of a tagv UID, 1..8
	SaltWidth   int // bytes of salt before each data row key, 0..8; 0 is no salt
	SaltBuckets int // number of salt buckets, 1 or more; counts only if SaltWidth > 0
}

// DefaultSchema is OpenTSDB's: 3-byte UIDs, no salt.
func DefaultSchema() Schema {
	return Schema{MetricWidth: 3, TagkWidth: 3, TagvWidth: 3, SaltWidth: 0, SaltBuckets: 20}
}

// Validate refuses widths and bucket counts that the formats do not have.
func (s Schema) Validate() error {
	for _, w := range []struct {
		name  string
		value int
	}{{"metric", s.MetricWidth}, {"tagk", s.TagkWidth}, {"tagv", s.TagvWidth}} {
		if w.value < 1 || w.value > 8 {
			return fmt.Errorf("%w: UID width of %s is %d bytes, must be 1 to 8", ErrInvalid, w.name, w.value)
		}
	}
	if s.SaltWidth < 0 || s.SaltWidth > 8 {
		return fmt.Errorf("%w: salt width is %d bytes, must be 0 to 8", ErrInvalid, s.SaltWidth)
	}
	if s.SaltWidth == 0 {
		return nil
	}
	if s.SaltBuckets < 1 {
		return fmt.Errorf("%w: %d salt buckets, must be 1 or more", ErrInvalid, s.SaltBuckets)
	}
	if s.SaltWidth < 4 && s.SaltBuckets > 1<<(8*s.SaltWidth) {
		return fmt.Errorf("%w: %d salt buckets do not fit into %d bytes of salt", ErrInvalid, s.SaltBuckets, s.SaltWidth)
	}
	return nil
}

// Width is the width in bytes of the UIDs of a kind.
func (s Schema) Width(k Kind) int {
	switch k {
	case Metric:
		return s.MetricWidth
	case Tagk:
		return s.TagkWidth
	default:
		return s.TagvWidth
	}
}

// MaxUID is the largest UID of a kind.
func (s Schema) MaxUID(k Kind) UID { return UID(^uint64(0) >> (64 - 8*s.Width(k))) }

// AppendUID appends the UID on the width of its kind.
func (s Schema) AppendUID(dst []byte, k Kind, uid UID) []byte {
	for shift := 8 * (s.Width(k) - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(uid>>shift))
	}
	return dst
}

// ParseUID reads a UID; b must have exactly the width of the kind.
func (s Schema) ParseUID(k Kind, b []byte) (UID, error) {
	if len(b) != s.Width(k) {
		return 0, fmt.Errorf("%w: UID of kind %s has %d bytes, want %d", ErrCorrupt, k, len(b), s.Width(k))
	}
	return readUID(b), nil
}

func readUID(b []byte) UID {
	var u UID
	for _, c := range b {
		u = u<<8 | UID(c)
	}
	return u
}
