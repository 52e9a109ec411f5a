package ingest

import (
	"context"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/request"
)

// direct is the direct road: one cell for each sample, in the store before the request is acknowledged.
func (a *Appender) direct(ctx context.Context, j *job, req *request.Write, t terms,
	result *request.Result) error {
	given := int64(0)
	for i, s := range j.series {
		if s == nil {
			continue
		}
		rs := req.Series[i]
		s.lock()
		refused := a.directSeries(j, s, req.Samples[rs.From:rs.To], t)
		given = max(given, s.runTime)
		s.unlock()
		if refused != (refusals{}) {
			rs.Labels = req.LabelsOf(i)
		}
		refused.tell(result, rs, t)
	}
	given = max(given, a.directHistograms(j, req, t, result))
	a.cache.gave(given)
	if j.batch.Len() == 0 {
		return nil
	}
	if err := a.reserve(ctx, given); err != nil {
		return err
	}
	if err := a.Apply(ctx, &j.batch); err != nil {
		return fmt.Errorf("store %d samples: %w", result.Written+result.Histograms, err)
	}
	a.applied(j)
	return nil
}

// directSeries adds the cells of one series to the batch, and the index rows that are missing.
func (a *Appender) directSeries(j *job, s *series, samples []request.Sample, t terms) (refused refusals) {
	const none = ^uint32(0) // no base time: they are multiples of 3600
	base, noted := none, false
	var day mapping.Day
	for _, sample := range samples {
		if !t.takes(sample, &refused) {
			continue
		}
		if b := mapping.BaseTime(sample.T); b != base {
			if base == none {
				j.tsuid = append(j.tsuid[:0], s.tsuid...)
				j.row = a.Settings.Schema.AppendRowKey(j.row[:0], j.tsuid, b)
			}
			base = b
			a.Settings.Schema.SetBaseTime(j.row, base)
			if d := mapping.DayOf(sample.T); !noted || d != day {
				day, noted = d, true
				a.putIndex(j, s, day, t.now)
			}
		}
		var flags byte
		j.cell, flags = mapping.AppendValue(j.cell[:0], sample.V)
		value := len(j.cell)
		j.cell = mapping.AppendQualifier(j.cell, uint32(sample.T-int64(base)*1000), flags)
		j.batch.Put(a.Settings.Tables.Data, j.row, catalog.FamilyData, j.cell[value:], s.cellTime(sample.T, t.now),
			j.cell[:value])
	}
	return refused
}
