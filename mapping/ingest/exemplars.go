package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/mapping/request"
)

// Exemplars and metadata are not buffered: they are stored with the index rows of their request, before it is
// acknowledged.

// putExemplars adds the exemplars of a request, whose series are found, to the batch.
func (a *Appender) putExemplars(j *job, req *request.Write, ad admission, result *request.Result) {
	for _, e := range req.Exemplars {
		if reason, err := a.putExemplar(j, req, e, ad); err != nil {
			result.Exemplars.Refuse(reason, err)
			continue
		}
		result.Exemplars.Written++
	}
}

// putExemplar adds an exemplar and, as its series may have no sample on that day, the index rows that are missing.
func (a *Appender) putExemplar(
	j *job, req *request.Write, e request.Exemplar, ad admission,
) (request.Reason, error) {
	s := j.series[e.Series]
	if s == nil {
		return request.ReasonSeriesRefused, fmt.Errorf("series %s: %w: its exemplars are refused as it is",
			request.FormatSeries(req.LabelsOf(e.Series)), mapping.ErrInvalid)
	}
	if e.T < 0 || e.T > ad.Latest {
		return request.ReasonTimestamp, fmt.Errorf("exemplar: %w", ad.timeError(req.LabelsOf(e.Series), e.T))
	}
	var err error
	if j.exemplarLabels, err = exemplars.AppendLabels(j.exemplarLabels[:0], e.Labels); err != nil {
		return request.ReasonExemplarLabels, fmt.Errorf("series %s: %w", request.FormatSeries(req.LabelsOf(e.Series)), err)
	}
	e.Labels = j.exemplarLabels
	s.Lock()
	j.IndexMissing(s, mapping.DayOf(e.T))
	s.Unlock()
	j.tsuid = append(j.tsuid[:0], s.TSUID()...)
	j.exemplars.Put(&j.batch, a.config.Settings.Tables.Exemplars(), a.exemplars, j.tsuid, e, ad.arrived)
	return "", nil
}

// putMetadata adds the metadata of a request to the batch, where it is new.
func (a *Appender) putMetadata(ctx context.Context, j *job, req *request.Write, ad admission) {
	if len(req.Metadata) == 0 {
		return
	}
	if err := a.metadata.Load(ctx, ad.arrived); err != nil {
		j.limited = len(req.Metadata) // it is sent again
		return
	}
	sender := request.SenderOf(ctx)
	for _, m := range req.Metadata {
		change, changed, err := a.metadata.Put(&j.batch, m, sender, ad.arrived)
		switch {
		case errors.Is(err, families.ErrLimited):
			j.limited++
		case err != nil:
			j.invalid++
		case changed:
			j.metadata = append(j.metadata, change)
		}
	}
}

// countOthers counts the exemplars and the metadata that a job has stored, and refused.
func (a *Appender) countOthers(j *job, result *request.Result) {
	m := &a.metrics
	if n := result.Exemplars.Written; n > 0 {
		m.exemplars.Add(float64(n))
	}
	for reason, n := range result.Exemplars.Refused {
		m.refusedExemplars.WithLabelValues(string(reason)).Add(float64(n))
	}
	if n := len(j.metadata); n > 0 {
		m.metadata.Add(float64(n))
	}
	if j.invalid > 0 {
		m.invalidMetadata.Add(float64(j.invalid))
	}
	if j.limited > 0 {
		m.limitedMetadata.Add(float64(j.limited))
	}
}
