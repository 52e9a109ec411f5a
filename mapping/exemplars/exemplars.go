// Package exemplars is how exemplars are stored: in a table of their own, a row for each hour of a series that has any,
// and in it a cell for each exemplar.
//
//	row        metric UID | base time, 4 bytes | (tagk UID | tagv UID)...     the row key of the samples, without salt
//	family     "p"
//	qualifier  milliseconds in the hour, 4 bytes | hash, 8 bytes
//	value      the bits of the value, 8 bytes | label bytes (see request.AppendLabel), sorted by name
//
// The hash is FNV-1a of the value, and keeps several exemplars of one instant apart. So an exemplar that comes again is
// written over itself. All numbers are big-endian. The functions are pure.
package exemplars

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

// MaxLabelChars is how many characters the names and values of an exemplar's labels may have together, by OpenMetrics.
const MaxLabelChars = 128

const (
	offsetBytes    = 4
	qualifierBytes = offsetBytes + 8
	valueBytes     = 8
)

// Rows makes and reads the keys of the rows.
type Rows struct{ schema mapping.Schema }

// NewRows returns the Rows of a store whose data table has a schema.
func NewRows(schema mapping.Schema) Rows {
	schema.SaltWidth = 0
	return Rows{schema}
}

// Append appends the key of the row of a series for a base time.
func (r Rows) Append(dst, tsuid []byte, base uint32) []byte {
	return r.schema.AppendRowKey(dst, tsuid, base)
}

// AppendTSUID appends the TSUID of the series that a row belongs to, and returns the row's base time. The error wraps
// mapping.ErrCorrupt.
func (r Rows) AppendTSUID(dst, row []byte) (tsuid []byte, base uint32, err error) {
	return r.schema.AppendRowTSUID(dst, row)
}

// Format writes the key of a row by its UIDs, for people and for ParseFormatted.
//
//	metric 000001 tags 000001=000001 2013-01-01T00:00:00Z
func (r Rows) Format(row []byte) string { return r.schema.FormatRowKey(row) }

// ParseFormatted reads what Format wrote. The error wraps mapping.ErrInvalid.
func (r Rows) ParseFormatted(text string) ([]byte, error) { return r.schema.ParseFormattedRowKey(text) }

// Range is all rows of a metric from one base time to another, both included. metric is its UID's bytes.
func (r Rows) Range(metric []byte, from, to uint32) store.Range {
	return store.Range{Start: r.Append(nil, metric, from), Stop: r.Append(nil, metric, to+1)}
}

// Writer puts exemplars into batches. It keeps its memory, and serves one caller at a time.
type Writer struct {
	row, cell []byte
}

// Put adds an exemplar of a series. e.T must be a time that a sample may have, e.Labels what AppendLabels has made.
func (w *Writer) Put(b *store.Batch, table string, rows Rows, tsuid []byte, e request.Exemplar, now int64) {
	base := mapping.BaseTime(e.T)
	w.row = rows.Append(w.row[:0], tsuid, base)
	w.cell = binary.BigEndian.AppendUint64(w.cell[:0], math.Float64bits(e.V))
	w.cell = append(w.cell, e.Labels...)
	value := len(w.cell)
	hash := fnv.New64a()
	_, _ = hash.Write(w.cell) // never fails
	w.cell = binary.BigEndian.AppendUint32(w.cell, uint32(e.T-int64(base)*1000))
	w.cell = hash.Sum(w.cell)
	b.Put(table, w.row, catalog.FamilySystem, w.cell[value:], now, w.cell[:value])
}

// Parse reads a cell of the row of a base time; its series is left out. The labels point into the value. The error
// wraps mapping.ErrCorrupt.
func Parse(base uint32, c store.Cell) (request.Exemplar, error) {
	if len(c.Qualifier) != qualifierBytes || len(c.Value) < valueBytes {
		return request.Exemplar{},
			fmt.Errorf("%w: a cell with a qualifier of %d bytes and a value of %d bytes is no exemplar",
				mapping.ErrCorrupt, len(c.Qualifier), len(c.Value))
	}
	return request.Exemplar{
		T:      int64(base)*1000 + int64(binary.BigEndian.Uint32(c.Qualifier)),
		V:      math.Float64frombits(binary.BigEndian.Uint64(c.Value)),
		Labels: c.Value[valueBytes:],
	}, nil
}

var errLong = errors.New("too long")

// AppendLabels appends the labels of an exemplar, given as label bytes, as they are stored: sorted by
// name, without those that have no value. The error says why they cannot be taken; it wraps mapping.ErrInvalid.
func AppendLabels(dst, raw []byte) ([]byte, error) {
	type label struct{ name, value []byte }
	var some [8]label
	ls, chars := some[:0], 0
	err := request.ParseLabels(raw, func(name, value []byte) error {
		if len(value) == 0 {
			return nil // an empty value is no label
		}
		if !utf8.Valid(name) || !utf8.Valid(value) || len(name) == 0 {
			return fmt.Errorf("%w: label %.64q of an exemplar: name and value must be UTF-8, and the name not empty",
				mapping.ErrInvalid, name)
		}
		if chars += utf8.RuneCount(name) + utf8.RuneCount(value); chars > MaxLabelChars {
			return errLong
		}
		ls = append(ls, label{name, value})
		return nil
	})
	if errors.Is(err, errLong) {
		return dst, fmt.Errorf("%w: the labels of an exemplar have more than the %d characters that OpenMetrics allows: "+
			"shorten them in the instrumented program", mapping.ErrInvalid, MaxLabelChars)
	}
	if err != nil {
		return dst, err
	}
	slices.SortFunc(ls, func(a, b label) int { return bytes.Compare(a.name, b.name) })
	for i, l := range ls {
		if i > 0 && bytes.Equal(ls[i-1].name, l.name) {
			return dst, fmt.Errorf("%w: label %q of an exemplar is there twice", mapping.ErrInvalid, l.name)
		}
		dst = request.AppendLabel(dst, string(l.name), string(l.value))
	}
	return dst, nil
}
