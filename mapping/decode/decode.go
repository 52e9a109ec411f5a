// Package decode writes the cells of OpenTSDB's and of promtsd's tables for people, a line for each: the table, what
// the row and the column are, what the value is, and the cell's timestamp.
//
//	tsdb up{instance="a"} 2026-11-22T10:00:00Z: 15.000s=1 30.000s=0.5 @2026-11-22T10:05:00.123Z
//	tsdb-uid metrics "up" -> 000001 @2026-11-22T10:00:01.002Z
//	promtsd active on 2026-11-22: up{instance="a"}: @2026-11-22T10:00:01.003Z
//
// What is of no known form is written as it is, in quotes or in hexadecimal. It is for reading only: cells that are to
// be loaded again are written by package cellio.
package decode

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// Decoder knows what the cells of a store mean. It serves one caller at a time.
type Decoder struct {
	Store    store.Store
	Settings catalog.Settings
	UIDs     *uid.Registry

	cells  mapping.RowDecoder
	points mapping.Points
}

// Dump writes the cells of some tables, in the order named. progress is told how many are written, and may be nil.
func (d *Decoder) Dump(ctx context.Context, tables []string, w io.Writer, progress func(cells int)) error {
	cells := 0
	for _, table := range tables {
		for row, err := range d.Store.Scan(ctx, store.Scan{Table: table}) {
			if err != nil {
				return fmt.Errorf("dump table %q after %d cells: %w", table, cells, err)
			}
			if err := d.row(ctx, w, table, row); err != nil {
				return fmt.Errorf("dump table %q: %w", table, err)
			}
			if cells += len(row.Cells); progress != nil {
				progress(cells)
			}
		}
	}
	return nil
}

// row writes the cells of a row. The names of its series are looked up once.
func (d *Decoder) row(ctx context.Context, w io.Writer, table string, row store.Row) error {
	tables := d.Settings.Tables
	cell := func(c store.Cell) string { return column(c) + plain(c.Value) }
	var key string
	var err error
	switch table {
	case tables.Data:
		tsuid, base, parseErr := d.Settings.Schema.AppendRowTSUID(nil, row.Key)
		if parseErr != nil {
			key = plain(row.Key)
			break
		}
		var names nameMap
		if names, err = d.names(ctx, tsuid); err == nil {
			key = d.Settings.Schema.FormatNamedRowKey(row.Key, names.name)
		}
		cell = func(c store.Cell) string { return d.dataCell(base, c) }
	case tables.UID:
		cell = func(c store.Cell) string {
			if text, ok := uid.FormatCell(d.Settings.Schema, row.Key, c); ok {
				return text
			}
			return plain(row.Key) + column(c) + plain(c.Value)
		}
	case tables.Meta:
		key, err = d.series(ctx, row.Key)
	case tables.Exemplars():
		tsuid, base, parseErr := exemplars.NewRows(d.Settings.Schema).AppendTSUID(nil, row.Key)
		if parseErr != nil {
			key = plain(row.Key)
			break
		}
		key, err = d.series(ctx, tsuid)
		cell = func(c store.Cell) string { return exemplarCell(base, c) }
	case tables.Journal():
		key = formatKey(row.Key, journal.FormatEntryKey)
		cell = func(c store.Cell) string { return fmt.Sprintf("%s%d bytes", column(c), len(c.Value)) }
	case tables.System:
		indexKey := func(row []byte) (string, bool) {
			return index.FormatKey(row, func(tsuid []byte) (series string) {
				series, err = d.series(ctx, tsuid)
				return series
			})
		}
		key = formatKey(row.Key, indexKey, journal.FormatKey, families.FormatKey)
	default:
		key = plain(row.Key)
	}
	if err != nil {
		return err
	}
	for _, c := range row.Cells {
		if _, err := fmt.Fprintf(w, "%s %s%s @%s\n", table, key, cell(c), stamp(c.Timestamp)); err != nil {
			return fmt.Errorf("write cells: %w", err)
		}
	}
	return nil
}

// dataCell is a cell of the data table, after its row.
func (d *Decoder) dataCell(base uint32, c store.Cell) string {
	var b strings.Builder
	b.WriteByte(':')
	d.cells.Reset(base)
	d.points.Reset()
	if err := d.cells.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
		fmt.Fprintf(&b, " %v", err)
		return b.String()
	}
	switch skipped := d.cells.Skipped(); {
	case skipped.Annotations > 0:
		fmt.Fprintf(&b, " annotation %x: %s", c.Qualifier, plain(c.Value))
	case skipped.Histograms > 0:
		fmt.Fprintf(&b, " histogram of OpenTSDB %x: %s", c.Qualifier, plain(c.Value))
	case skipped.Unknown > 0:
		fmt.Fprintf(&b, " unknown cell %x: %s", c.Qualifier, plain(c.Value))
	}
	d.cells.AppendPoints(&d.points, math.MinInt64, math.MaxInt64)
	for i, t := range d.points.T {
		fmt.Fprintf(&b, " %.3fs=%s", float64(t-int64(base)*1000)/1000, d.value(i))
	}
	return b.String()
}

func (d *Decoder) value(i int) string {
	switch h := d.points.Histogram(i); {
	case h.Int != nil:
		return h.Int.String()
	case h.Float != nil:
		return h.Float.String()
	default:
		return strconv.FormatFloat(d.points.V[i], 'g', -1, 64)
	}
}

// exemplarCell is a cell of the table of exemplars, after its series.
func exemplarCell(base uint32, c store.Cell) string {
	e, err := exemplars.Parse(base, c)
	if err != nil {
		return fmt.Sprintf(": %v", err)
	}
	labels := mapping.FormatSeries("", func(yield func(name, value string) bool) {
		err = request.ParseLabels(e.Labels, func(name, value []byte) error {
			yield(string(name), string(value))
			return nil
		})
	})
	if err != nil {
		return fmt.Sprintf(": %v", err)
	}
	return fmt.Sprintf(": %s %s of %s", strconv.FormatFloat(e.V, 'g', -1, 64), labels, stamp(e.T))
}

// nameMap has the names of the UIDs of a series.
type nameMap map[uid.ID]string

func (m nameMap) name(kind mapping.Kind, id mapping.UID) (string, bool) {
	text, ok := m[uid.ID{Kind: kind, UID: id}]
	return text, ok
}

// names looks up the names of a series.
func (d *Decoder) names(ctx context.Context, tsuid []byte) (nameMap, error) {
	metric, tags, err := d.Settings.Schema.ParseTSUID(tsuid, nil)
	if err != nil {
		return nil, nil // it is shown without names
	}
	ids := []uid.ID{{Kind: mapping.Metric, UID: metric}}
	for _, t := range tags {
		ids = append(ids, uid.ID{Kind: mapping.Tagk, UID: t.Key}, uid.ID{Kind: mapping.Tagv, UID: t.Value})
	}
	texts, err := d.UIDs.Texts(ctx, ids)
	if err != nil {
		return nil, err
	}
	names := make(nameMap, len(ids))
	for i, text := range texts {
		if text.OK {
			names[ids[i]] = text.Text
		}
	}
	return names, nil
}

// series is what a TSUID is called.
func (d *Decoder) series(ctx context.Context, tsuid []byte) (string, error) {
	names, err := d.names(ctx, tsuid)
	return d.Settings.Schema.FormatNamedTSUID(tsuid, names.name), err
}

// formatKey is the text of the first format that knows the row.
func formatKey(row []byte, formats ...func([]byte) (text string, ok bool)) string {
	for _, format := range formats {
		if text, ok := format(row); ok {
			return text
		}
	}
	return plain(row)
}

// column is a qualifier between a row and a value.
func column(c store.Cell) string {
	if len(c.Qualifier) == 0 {
		return ": "
	}
	return " " + plain(c.Qualifier) + ": "
}

// plain is text as it is, and other bytes in hexadecimal.
func plain(b []byte) string {
	if !utf8.Valid(b) {
		return hex.EncodeToString(b)
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) {
			return hex.EncodeToString(b)
		}
	}
	return string(b)
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
