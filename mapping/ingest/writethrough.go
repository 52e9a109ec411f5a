package ingest

import (
	"context"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/request"
)

// writeThrough stores one cell for each sample before the request is acknowledged.
func (a *Appender) writeThrough(
	ctx context.Context, j *job, req *request.Write, ad admission, result *request.Result,
) error {
	latest := int64(0) // cell timestamp
	for i, s := range j.series {
		if s == nil {
			continue
		}
		rs := &req.Series[i]
		s.Lock()
		refused := a.putSamples(j, s, req.Samples[rs.From:rs.To], ad)
		latest = max(latest, s.LastCellTime())
		s.Unlock()
		ad.count(result, req, i, refused)
	}
	j.eachHistogram(req, ad, result, func(series int, t int64, stored []byte) {
		s := j.series[series]
		s.Lock()
		defer s.Unlock()
		a.putHistogram(j, s, t, stored, ad)
		latest = max(latest, s.LastCellTime())
	})
	a.table.RaiseFloor(latest)
	if j.batch.Len() == 0 {
		return nil
	}
	if err := a.highWater.reserve(ctx, latest); err != nil {
		return err
	}
	return a.applyBatch(ctx, j)
}

// putSamples adds the cells of one series, which is locked, to the batch, and the index rows that are missing.
func (a *Appender) putSamples(
	j *job, s *memtable.Series, samples []request.Sample, ad admission,
) (refused request.Refusals) {
	const none = ^uint32(0) // no base time: they are multiples of 3600
	base, noted := none, false
	var day mapping.Day
	schema := a.config.Settings.Schema
	for _, sample := range samples {
		if !ad.Admits(sample) {
			refused.Count(sample, &ad.Admission)
			continue
		}
		if b := mapping.BaseTime(sample.T); b != base {
			if base == none {
				j.tsuid = append(j.tsuid[:0], s.TSUID()...)
				j.row = schema.AppendRowKey(j.row[:0], j.tsuid, b)
			}
			base = b
			schema.SetBaseTime(j.row, base)
			if d := mapping.DayOf(sample.T); !noted || d != day {
				day, noted = d, true
				j.IndexMissing(s, day)
			}
		}
		var flags byte
		j.cell, flags = mapping.AppendValue(j.cell[:0], sample.V)
		value := len(j.cell)
		j.cell = mapping.AppendQualifier(j.cell, uint32(sample.T-int64(base)*1000), flags)
		j.batch.Put(a.config.Settings.Tables.Data, j.row, catalog.FamilyData, j.cell[value:],
			s.CellTime(sample.T, ad.arrived), j.cell[:value])
	}
	return refused
}

// putHistogram adds the cell of a histogram of a series, which is locked, and the index rows that are missing.
func (a *Appender) putHistogram(j *job, s *memtable.Series, t int64, stored []byte, ad admission) {
	j.IndexMissing(s, mapping.DayOf(t))
	j.tsuid = append(j.tsuid[:0], s.TSUID()...)
	j.row = a.config.Settings.Schema.AppendRowKey(j.row[:0], j.tsuid, mapping.BaseTime(t))
	j.cell = mapping.AppendHistogramQualifier(j.cell[:0], uint32(t%mapping.HourMs))
	j.batch.Put(a.config.Settings.Tables.Data, j.row, catalog.FamilyData, j.cell, s.CellTime(t, ad.arrived), stored)
}
