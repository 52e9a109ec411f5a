// Package rowmerge makes cells of the rows that a flush takes from the memtable: one cell of the new points of a row;
// or, where the hour has ended, one cell of all points of the row, so that years of data are one cell an hour and
// series.
//
//	store      10:00 | cell of 10:00..10:20 | cell of 10:20..10:40 |
//	memtable   10:00 |                                            points of 10:40..10:59
//	batch      10:00 | put one cell of 10:00..10:59; delete the two, at their cell timestamps
//
// Who reads the row before, during or after the batch finds the same samples. Native histograms stay cells of their
// own.
package rowmerge

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/store"
)

// Config is what a Merger needs.
type Config struct {
	Store  store.Store
	Schema mapping.Schema
	Table  string // the data table

	// Unreadable is told of a row whose cells stay as they are, because the store or promtsd cannot read one of them.
	Unreadable func(row []byte, err error)
}

// Merger is the memory of one flush worker. The zero value is not ready; use New.
type Merger struct {
	config Config
	rows   []keyedRow
	keys   []byte
	tsuid  []byte
	merger mapping.CellMerger
	merges []*keyedRow // the rows to be merged
	olds   []store.Cell
	batch  *store.Batch
	stats  Stats

	qualifier, value []byte
}

// keyedRow is a row with its row key.
type keyedRow struct {
	*memtable.Row
	key []byte
}

// Stats counts what a batch holds.
type Stats struct {
	Cells  int // that are put
	Merged int // rows of an ended hour whose cells become one
}

// New returns a Merger.
func New(c Config) *Merger { return &Merger{config: c} }

// AppendRows appends to a batch what makes the points of rows durable, and notes in the rows which are merged. It reads
// the rows that are to be merged; the error is the store's.
func (m *Merger) AppendRows(ctx context.Context, rows []memtable.Row, b *store.Batch) (Stats, error) {
	m.batch, m.stats = b, Stats{}
	m.sort(rows)
	if err := m.mergeRows(ctx); err != nil {
		return Stats{}, err
	}
	for i := range m.rows {
		if r := &m.rows[i]; !r.Merged {
			m.putRow(r)
		}
	}
	return m.stats, nil
}

// sort fills m.rows in the order of their keys.
func (m *Merger) sort(rows []memtable.Row) {
	m.rows, m.keys = m.rows[:0], m.keys[:0]
	for i := range rows {
		r := &rows[i]
		at := len(m.keys)
		m.tsuid = append(m.tsuid[:0], r.Series.TSUID()...)
		m.keys = m.config.Schema.AppendRowKey(m.keys, m.tsuid, r.Base)
		m.rows = append(m.rows, keyedRow{r, m.keys[at:len(m.keys):len(m.keys)]})
	}
	slices.SortFunc(m.rows, func(x, y keyedRow) int { return bytes.Compare(x.key, y.key) })
}

// putRow adds the points of a row as a cell; as more than one if they are very many.
func (m *Merger) putRow(r *keyedRow) {
	for points, t := r.Points, r.CellTime; len(points) > 0; t++ {
		piece := points
		if len(piece) > memtable.MaxCellBytes {
			piece = points[:mapping.CutPoints(points, memtable.MaxCellBytes)]
		}
		points = points[len(piece):]
		if r.Ascending && !r.Mixed {
			m.qualifier, m.value = mapping.AppendCell(m.qualifier[:0], m.value[:0], piece)
			m.put(r.key, m.qualifier, t, m.value)
			continue
		}
		m.merger.Reset()
		m.merger.AddPoints(piece, t)
		m.qualifier, m.value = m.merger.AppendCell(m.qualifier[:0], m.value[:0])
		m.putMerged(r.key, t)
	}
}

// putMerged adds the cell of the merger's points, if there are any, and its native histograms.
func (m *Merger) putMerged(key []byte, timestamp int64) {
	if len(m.qualifier) > 0 {
		m.put(key, m.qualifier, timestamp, m.value)
	}
	for offset, stored := range m.merger.Histograms() {
		m.qualifier = mapping.AppendHistogramQualifier(m.qualifier[:0], offset)
		m.put(key, m.qualifier, timestamp, stored)
	}
}

func (m *Merger) put(key, qualifier []byte, timestamp int64, value []byte) {
	m.batch.Put(m.config.Table, key, catalog.FamilyData, qualifier, timestamp, value)
	m.stats.Cells++
}

// mergeRows reads the rows of ended hours that have cells in the store, and makes one cell of these and the new
// points. A row that cannot be read is left as it is: its points get a cell of their own.
func (m *Merger) mergeRows(ctx context.Context) error {
	m.merges = m.merges[:0]
	for i := range m.rows {
		if m.rows[i].Merge {
			m.merges = append(m.merges, &m.rows[i])
		}
	}
	left, err := m.mergeEach(ctx, m.merges)
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	for i := range left { // one of these cannot be read
		_, err := m.mergeEach(ctx, left[i:i+1])
		if errors.Is(err, store.ErrCorrupt) {
			m.config.Unreadable(left[i].key, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// mergeEach reads some of the rows, and returns those that it did not come to before an error.
func (m *Merger) mergeEach(ctx context.Context, rows []*keyedRow) (left []*keyedRow, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	get := store.Get{Table: m.config.Table, Columns: []store.Column{{Family: catalog.FamilyData}}}
	for _, r := range rows {
		get.Rows = append(get.Rows, r.key)
	}
	for stored, err := range m.config.Store.Get(ctx, get) {
		if err != nil {
			return rows, err
		}
		for !bytes.Equal(rows[0].key, stored.Key) {
			rows = rows[1:]
		}
		rows[0].Merged = m.mergeRow(rows[0], stored)
		rows = rows[1:]
	}
	return nil, nil
}

// mergeRow makes one cell of those of a row and the new points, if that is safe and worth it. Native histograms stay in
// cells of their own; they count where they share an instant with points.
func (m *Merger) mergeRow(r *keyedRow, stored store.Row) bool {
	m.merger.Reset()
	m.olds = m.olds[:0]
	size, latest, cells := len(r.Points), r.CellTime, 0
	for _, c := range stored.Cells {
		histogram := mapping.IsHistogramCell(c.Qualifier)
		if len(c.Qualifier)%2 != 0 && !histogram {
			if c.Qualifier[0] == 0x05 { // OpenTSDB appends to it, and all its points have the timestamp of the last
				return false
			}
			continue
		}
		if err := m.merger.Add(c.Qualifier, c.Timestamp, c.Value); err != nil {
			m.config.Unreadable(stored.Key, err)
			return false
		}
		latest = max(latest, c.Timestamp)
		m.olds = append(m.olds, c)
		if !histogram {
			size += len(c.Qualifier) + len(c.Value)
			cells++
		}
	}
	if size > 2*memtable.MaxCellBytes || cells == 0 || cells == 1 && len(r.Points) == 0 {
		return false
	}
	m.merger.AddPoints(r.Points, r.CellTime)
	m.qualifier, m.value = m.merger.AppendCell(m.qualifier[:0], m.value[:0])
	for _, c := range m.olds {
		keep := bytes.Equal(c.Qualifier, m.qualifier)
		if mapping.IsHistogramCell(c.Qualifier) {
			keep = m.merger.HasHistogram(c.Qualifier)
		}
		if !keep {
			m.batch.Delete(m.config.Table, r.key, catalog.FamilyData, c.Qualifier, c.Timestamp)
		}
	}
	m.putMerged(r.key, latest)
	m.stats.Merged++
	return true
}
