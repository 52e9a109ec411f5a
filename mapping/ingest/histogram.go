package ingest

import (
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/request"
)

// Native histograms take the same two roads as samples, after those of their request. They are few and large: each is
// parsed and checked, and made anew in the form in which cells hold it.

// takeHistogram makes of a histogram what cells hold. ok is false if it is refused.
func (j *job) takeHistogram(
	req *request.Write, h request.Histogram, t terms, result *request.Result,
) (at int64, stored []byte, ok bool) {
	reason := request.ReasonHistogram
	parsed, at, err := mapping.ParseHistogram(h.Message)
	if err == nil {
		j.stored, err = parsed.AppendStored(j.stored[:0])
	}
	if err != nil {
		err = fmt.Errorf("series %s: %w", request.FormatSeries(req.LabelsOf(h.Series)), err)
	} else if at < 0 || at > t.latest {
		reason, err = request.ReasonTimestamp, t.timeError(req.LabelsOf(h.Series), at)
	}
	if err != nil {
		result.Refuse(reason, 1, err)
		return 0, nil, false
	}
	return at, j.stored, true
}

// offsetOf is the offset of a time in its row.
func offsetOf(at int64) uint32 { return uint32(at % mapping.HourMs) }

// eachHistogram calls f with each of a request's histograms that is accepted: its place in the list of series, its
// time, and what cells hold, which is valid until f returns.
func (j *job) eachHistogram(
	req *request.Write, t terms, result *request.Result, f func(series int, at int64, stored []byte),
) {
	for _, h := range req.Histograms {
		if j.series[h.Series] == nil {
			continue // refused with its series
		}
		if at, stored, ok := j.takeHistogram(req, h, t, result); ok {
			f(h.Series, at, stored)
			result.Histograms++
		}
	}
}

// placeHistograms puts the histograms of a request into open rows, and the index rows that are missing into the batch.
func (a *Appender) placeHistograms(
	j *job, req *request.Write, t terms, number uint64, result *request.Result,
) (grown, repeats int) {
	j.eachHistogram(req, t, result, func(series int, at int64, stored []byte) {
		j.point = mapping.AppendHistogramPoint(j.point[:0], offsetOf(at), stored)
		s := a.lock(j.series[series])
		defer s.unlock()
		j.series[series] = s
		row, opened := s.openRow(mapping.BaseTime(at), a.startBase)
		if !row.indexed {
			a.putIndex(j, s, mapping.DayOf(at), t.now)
		}
		if !row.waiting() {
			grown += a.note(s, waiting{number, row.base})
		}
		row.mixed = true
		more, repeat := row.addPoint(offsetOf(at), j.point)
		s.arrived = max(s.arrived, t.now)
		grown += opened + more
		if repeat {
			repeats++
		}
	})
	return grown, repeats
}

// directHistograms adds the cells of a request's histograms to the batch, and the index rows that are missing. It
// returns the latest cell timestamp given.
func (a *Appender) directHistograms(
	j *job, req *request.Write, t terms, result *request.Result,
) (given int64) {
	j.eachHistogram(req, t, result, func(series int, at int64, stored []byte) {
		s := j.series[series]
		j.tsuid = append(j.tsuid[:0], s.tsuid...)
		j.row = a.Settings.Schema.AppendRowKey(j.row[:0], j.tsuid, mapping.BaseTime(at))
		j.cell = mapping.AppendHistogramQualifier(j.cell[:0], offsetOf(at))
		s.lock()
		defer s.unlock()
		a.putIndex(j, s, mapping.DayOf(at), t.now)
		j.batch.Put(a.Settings.Tables.Data, j.row, catalog.FamilyData, j.cell, s.cellTime(at, t.now), stored)
		given = max(given, s.runTime)
	})
	return given
}
