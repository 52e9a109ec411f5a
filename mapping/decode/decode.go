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
	"errors"
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

	row    mapping.RowDecoder
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
			for _, c := range row.Cells {
				text, err := d.Cell(ctx, table, row.Key, c)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintln(w, table, text); err != nil {
					return fmt.Errorf("write cells: %w", err)
				}
			}
			if cells += len(row.Cells); progress != nil {
				progress(cells)
			}
		}
	}
	return nil
}

// Cell is the line of a cell without the name of its table. An error is that of looking a name up.
func (d *Decoder) Cell(ctx context.Context, table string, row []byte, c store.Cell) (string, error) {
	var failed error
	series := func(tsuid []byte) string {
		name, err := d.series(ctx, tsuid)
		failed = errors.Join(failed, err)
		return name
	}
	tables, text := d.Settings.Tables, ""
	switch table {
	case tables.Data:
		text = d.dataCell(row, c, series)
	case tables.UID:
		ok := false
		if text, ok = uid.FormatCell(d.Settings.Schema, row, c); !ok {
			text = plain(row) + column(c) + plain(c.Value)
		}
	case tables.Meta:
		text = series(row) + column(c) + plain(c.Value)
	case tables.Exemplars():
		text = d.exemplarCell(row, c, series)
	case tables.Journal():
		text = keyOr(row, journal.FormatEntryKey) + column(c) + fmt.Sprintf("%d bytes", len(c.Value))
	case tables.System:
		indexKey := func(row []byte) (string, bool) { return index.FormatKey(row, series) }
		text = keyOr(row, indexKey, journal.FormatKey, families.FormatKey) + column(c) + plain(c.Value)
	default:
		text = plain(row) + column(c) + plain(c.Value)
	}
	return text + " @" + stamp(c.Timestamp), failed
}

// dataCell is a cell of the data table.
func (d *Decoder) dataCell(row []byte, c store.Cell, series func([]byte) string) string {
	tsuid, base, err := d.Settings.Schema.AppendRowTSUID(nil, row)
	if err != nil {
		return plain(row) + column(c) + plain(c.Value)
	}
	var b strings.Builder
	b.WriteString(series(tsuid))
	b.WriteString(" " + time.Unix(int64(base), 0).UTC().Format(time.RFC3339))
	if bucket := d.Settings.Schema.SaltWidth; bucket > 0 {
		fmt.Fprintf(&b, " salt %x", row[:bucket])
	}
	b.WriteByte(':')
	d.row.Reset(base)
	d.points.Reset()
	if err := d.row.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
		fmt.Fprintf(&b, " %v", err)
		return b.String()
	}
	switch skipped := d.row.Skipped(); {
	case skipped.Annotations > 0:
		fmt.Fprintf(&b, " annotation %x: %s", c.Qualifier, plain(c.Value))
	case skipped.Histograms > 0:
		fmt.Fprintf(&b, " histogram of OpenTSDB %x: %s", c.Qualifier, plain(c.Value))
	case skipped.Unknown > 0:
		fmt.Fprintf(&b, " unknown cell %x: %s", c.Qualifier, plain(c.Value))
	}
	d.row.AppendPoints(&d.points, math.MinInt64, math.MaxInt64)
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

// exemplarCell is a cell of the table of exemplars.
func (d *Decoder) exemplarCell(row []byte, c store.Cell, series func([]byte) string) string {
	tsuid, base, err := exemplars.NewRows(d.Settings.Schema).AppendTSUID(nil, row)
	if err != nil {
		return plain(row) + column(c) + plain(c.Value)
	}
	e, err := exemplars.Parse(base, c)
	if err != nil {
		return fmt.Sprintf("%s: %v", series(tsuid), err)
	}
	var ls []string
	err = request.ParseLabels(e.Labels, func(name, value []byte) error {
		ls = append(ls, fmt.Sprintf("%s=%q", name, value))
		return nil
	})
	if err != nil {
		return fmt.Sprintf("%s: %v", series(tsuid), err)
	}
	return fmt.Sprintf("%s: %s {%s} of %s", series(tsuid), strconv.FormatFloat(e.V, 'g', -1, 64), strings.Join(ls, ","),
		stamp(e.T))
}

// series is what a TSUID is called: metric{tagk="tagv",...}, in the order of its tagk UIDs, with the UID in place of a
// name that is not there.
func (d *Decoder) series(ctx context.Context, tsuid []byte) (string, error) {
	metric, tags, err := d.Settings.Schema.ParseTSUID(tsuid, nil)
	if err != nil {
		return plain(tsuid), nil
	}
	ids := []uid.ID{{Kind: mapping.Metric, UID: metric}}
	for _, t := range tags {
		ids = append(ids, uid.ID{Kind: mapping.Tagk, UID: t.Key}, uid.ID{Kind: mapping.Tagv, UID: t.Value})
	}
	texts, err := d.UIDs.Texts(ctx, ids)
	if err != nil {
		return "", err
	}
	name := func(i int) string {
		if !texts[i].OK {
			return fmt.Sprintf("%v:%d", ids[i].Kind, ids[i].UID)
		}
		return texts[i].Text
	}
	var b strings.Builder
	if name(0) != mapping.NoMetric {
		b.WriteString(name(0))
	}
	b.WriteByte('{')
	separator := ""
	for i := 1; i < len(ids); i += 2 {
		if name(i) != mapping.NoTagk {
			fmt.Fprintf(&b, "%s%s=%q", separator, name(i), name(i+1))
			separator = ","
		}
	}
	b.WriteByte('}')
	return b.String(), nil
}

// keyOr is the text of the first form that knows the row.
func keyOr(row []byte, forms ...func([]byte) (string, bool)) string {
	for _, form := range forms {
		if text, ok := form(row); ok {
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
