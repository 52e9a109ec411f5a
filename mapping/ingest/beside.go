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

// Exemplars and metadata wait for nothing: they go into the store with the index rows of their request, before it is
// acknowledged.

// beside is what a job needs for them.
type beside struct {
	writer  exemplars.Writer
	labels  []byte
	changes []families.Change // metadata that the batch holds
	invalid int               // metadata that cannot be kept
	limited int               // metadata of which there is too much
}

func (b *beside) reset() { b.changes, b.invalid, b.limited = b.changes[:0], 0, 0 }

// putBeside adds the exemplars of a request, whose series are found, and its metadata to the batch.
func (a *Appender) putBeside(ctx context.Context, j *job, req *request.Write, t terms,
	result *request.Result) {
	for _, e := range req.Exemplars {
		if reason, err := a.putExemplar(j, req, e, t); err != nil {
			result.Exemplars.Refuse(reason, err)
			continue
		}
		result.Exemplars.Written++
	}
	if len(req.Metadata) == 0 {
		return
	}
	if err := a.meta.Load(ctx, t.now); err != nil {
		j.beside.limited = len(req.Metadata) // it is repeated
		return
	}
	sender := request.SenderOf(ctx)
	for _, m := range req.Metadata {
		change, changed, err := a.meta.Put(&j.batch, m, sender, t.now)
		switch {
		case errors.Is(err, families.ErrLimited):
			j.beside.limited++
		case err != nil:
			j.beside.invalid++
		case changed:
			j.beside.changes = append(j.beside.changes, change)
		}
	}
}

// putExemplar adds an exemplar and, as its series may have no sample on that day, what finds it.
func (a *Appender) putExemplar(j *job, req *request.Write, e request.Exemplar, t terms) (request.Reason,
	error) {
	s := j.series[e.Series]
	if s == nil {
		return request.ReasonSeriesRefused, fmt.Errorf("series %s: %w: its exemplars are refused as it is",
			request.FormatSeries(req.LabelsOf(e.Series)), mapping.ErrInvalid)
	}
	if e.T < 0 || e.T > t.latest {
		return request.ReasonTimestamp, fmt.Errorf("exemplar: %w", t.timeError(req.LabelsOf(e.Series), e.T))
	}
	var err error
	if j.beside.labels, err = exemplars.AppendLabels(j.beside.labels[:0], e.Labels); err != nil {
		return request.ReasonExemplarLabels, fmt.Errorf("series %s: %w", request.FormatSeries(req.LabelsOf(e.Series)), err)
	}
	e.Labels = j.beside.labels
	s.lock()
	a.putIndex(j, s, mapping.DayOf(e.T), t.now)
	s.unlock()
	j.tsuid = append(j.tsuid[:0], s.tsuid...)
	j.beside.writer.Put(&j.batch, a.Settings.Tables.Exemplars(), a.rows, j.tsuid, e, t.now)
	return "", nil
}

// countBeside counts what a job has stored beside samples, and refused.
func (a *Appender) countBeside(j *job, result *request.Result) {
	m := &a.metrics
	if n := result.Exemplars.Written; n > 0 {
		m.exemplars.Add(float64(n))
	}
	for reason, n := range result.Exemplars.Refused {
		m.refusedExemplars.WithLabelValues(string(reason)).Add(float64(n))
	}
	if n := len(j.beside.changes); n > 0 {
		m.metadata.Add(float64(n))
	}
	if j.beside.invalid > 0 {
		m.invalidMetadata.Add(float64(j.beside.invalid))
	}
	if j.beside.limited > 0 {
		m.limitedMetadata.Add(float64(j.beside.limited))
	}
}
