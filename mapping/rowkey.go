package mapping

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A TSUID names a series. Its tags are sorted by tagk UID, not by tag name:
//
//	| metric UID  | tagk UID  | tagv UID  |  for each tag
//	  MetricWidth   TagkWidth   TagvWidth
//
// A row key names one hour of a series; it is the TSUID with the base time put in after the metric, behind the salt:
//
//	| salt      | metric UID  | base time | tagk UID  | tagv UID  |  for each tag
//	  SaltWidth   MetricWidth   4           TagkWidth   TagvWidth
//
// Readers take the tags in any order and take a repeated tagk, because OpenTSDB does. A key without tags is well-formed
// here, although OpenTSDB refuses it in data rows; rows of global annotations are of that form.

const baseTimeWidth = 4

// RowKey is a data row key taken apart. Its slices point into the key.
type RowKey struct {
	Salt   []byte // SaltWidth bytes
	Metric []byte // the metric UID
	Base   uint32 // base time in seconds since 1970
	Tags   []byte // tagk and tagv UIDs, a multiple of PairWidth
}

// PairWidth is the number of bytes of one tag in a TSUID or row key.
func (s Schema) PairWidth() int { return s.TagkWidth + s.TagvWidth }

// TagsOffset is the number of bytes before the tags of a row key.
func (s Schema) TagsOffset() int { return s.baseOffset() + baseTimeWidth }

func (s Schema) baseOffset() int { return s.SaltWidth + s.MetricWidth }

// SortTags brings tags into the order of a TSUID: by tagk UID, then by tagv UID.
func (s Schema) SortTags(tags []Tag) {
	// UIDs of one kind have one width, so their numbers have the order of their bytes.
	slices.SortFunc(tags, func(a, b Tag) int {
		switch {
		case a.Key < b.Key || a.Key == b.Key && a.Value < b.Value:
			return -1
		case a == b:
			return 0
		default:
			return 1
		}
	})
}

// AppendTSUID appends the TSUID of a series whose tags SortTags has sorted.
func (s Schema) AppendTSUID(dst []byte, metric UID, sortedTags []Tag) []byte {
	dst = s.AppendUID(dst, Metric, metric)
	for _, t := range sortedTags {
		dst = s.AppendUID(dst, Tagk, t.Key)
		dst = s.AppendUID(dst, Tagv, t.Value)
	}
	return dst
}

// ParseTSUID takes a TSUID apart. The tags are appended in the order in which they stand there. The error wraps
// ErrCorrupt; tags then come back as they were.
func (s Schema) ParseTSUID(tsuid []byte, tags []Tag) (metric UID, appended []Tag, err error) {
	if err := s.checkTSUID(tsuid); err != nil {
		return 0, tags, err
	}
	metric = readUID(tsuid[:s.MetricWidth])
	for b := tsuid[s.MetricWidth:]; len(b) > 0; b = b[s.PairWidth():] {
		tags = append(tags, Tag{Key: readUID(b[:s.TagkWidth]), Value: readUID(b[s.TagkWidth:s.PairWidth()])})
	}
	return metric, tags, nil
}

func (s Schema) checkTSUID(tsuid []byte) error {
	if tags := len(tsuid) - s.MetricWidth; tags < 0 || tags%s.PairWidth() != 0 {
		return fmt.Errorf("%w: TSUID %x has %d bytes, want %d and %d for each tag",
			ErrCorrupt, clip(tsuid), len(tsuid), s.MetricWidth, s.PairWidth())
	}
	return nil
}

// AppendRowKey appends the key of the data row of a series for a base time, salt included. tsuid must have at least the
// bytes of its metric.
func (s Schema) AppendRowKey(dst, tsuid []byte, base uint32) []byte {
	if s.SaltWidth > 0 {
		dst = s.AppendSalt(dst, s.Bucket(tsuid))
	}
	dst = append(dst, tsuid[:s.MetricWidth]...)
	dst = binary.BigEndian.AppendUint32(dst, base)
	return append(dst, tsuid[s.MetricWidth:]...)
}

// SetBaseTime changes the base time of a row key in place. rowKey must have come from AppendRowKey.
func (s Schema) SetBaseTime(rowKey []byte, base uint32) {
	binary.BigEndian.PutUint32(rowKey[s.baseOffset():], base)
}

// ParseRowKey takes a data row key apart. It does not check that the salt is the series' own, nor that the base time is
// a full hour: OpenTSDB reads such rows too. The error, about a length that no key can have, wraps ErrCorrupt.
func (s Schema) ParseRowKey(row []byte) (RowKey, error) {
	if err := s.checkRowKey(row); err != nil {
		return RowKey{}, err
	}
	base, tags := s.baseOffset(), s.TagsOffset()
	return RowKey{
		Salt:   row[:s.SaltWidth:s.SaltWidth],
		Metric: row[s.SaltWidth:base:base],
		Base:   binary.BigEndian.Uint32(row[base:tags]),
		Tags:   row[tags:],
	}, nil
}

// AppendRowTSUID appends the TSUID of the series that a data row belongs to, and returns the row's base time. The error
// wraps ErrCorrupt; dst then comes back as it was.
func (s Schema) AppendRowTSUID(dst, row []byte) (tsuid []byte, base uint32, err error) {
	if err := s.checkRowKey(row); err != nil {
		return dst, 0, err
	}
	offset := s.baseOffset()
	dst = append(dst, row[s.SaltWidth:offset]...)
	dst = append(dst, row[offset+baseTimeWidth:]...)
	return dst, binary.BigEndian.Uint32(row[offset:]), nil
}

func (s Schema) checkRowKey(row []byte) error {
	if tags := len(row) - s.TagsOffset(); tags < 0 || tags%s.PairWidth() != 0 {
		return fmt.Errorf("%w: row key %x has %d bytes, want %d and %d for each tag",
			ErrCorrupt, clip(row), len(row), s.TagsOffset(), s.PairWidth())
	}
	return nil
}

// clip shortens bytes that go into an error.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }
