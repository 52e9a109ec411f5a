package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

// appendBuffered makes a request durable in the journal, and its samples readable in the memtable.
func (a *Appender) appendBuffered(
	ctx context.Context, j *job, req *request.Write, ad admission, result *request.Result,
) error {
	w, err := a.recovery.Journal()
	if err != nil {
		return err
	}
	ad.arrived = a.highWater.arrive(ad.arrived) // after all that is in a journal that was lost, see lost
	j.arrived = ad.arrived
	if err := a.highWater.reserve(ctx, ad.arrived); err != nil {
		return err
	}
	if err := a.waitForMemory(ctx); err != nil {
		return err
	}
	encoding, body := j.journalBody(req, result)
	e := journal.Entry{
		Encoding: encoding, Body: body, Arrived: ad.arrived, Latest: ad.Latest,
		NeedMetricName: req.NeedMetricName, RefuseInfinities: ad.RefuseInfinities,
		UIDsDamaged: result.Refused[request.ReasonUIDDamaged] > 0,
		MaxLabels:   ad.limits.Labels, MaxLabelName: ad.limits.LabelName, MaxLabelValue: ad.limits.LabelValue,
	}
	if err := w.Write(ctx, &e, func(number uint64) { a.buffer(j, req, ad, number, result) }); err != nil {
		return err
	}
	if err := a.applyBatch(ctx, j); err != nil {
		return err
	}
	return w.Confirm(ctx)
}

// limitReasons are those for which a series is refused today and may be accepted tomorrow.
var limitReasons = []request.Reason{
	request.ReasonActiveSeries, request.ReasonNewNames, request.ReasonUIDsExhausted,
}

// journalBody is the body of the journal entry: as the request came, where a replay would accept the same series. It is
// encoded anew without the series that limits refused, and where there is no body: what came by OTLP spells out the
// labels of each series, and becomes a tenth when it is compressed.
func (j *job) journalBody(req *request.Write, result *request.Result) (encoding byte, body []byte) {
	limited := 0
	for _, reason := range limitReasons {
		limited += result.Refused[reason]
	}
	if req.Body != nil && limited == 0 {
		return req.Encoding, req.Body
	}
	j.flat = req.AppendFlat(j.flat[:0], func(series int) bool { return j.series[series] != nil })
	j.body = s2.Encode(j.body[:cap(j.body)], j.flat)
	return request.EncodingFlatBlock, j.body
}

const (
	memoryWait = time.Second           // how long a request may wait for memory
	memoryStep = 20 * time.Millisecond // how often it looks
)

// waitForMemory waits until there is memory for the samples of a request, and not for long.
func (a *Appender) waitForMemory(ctx context.Context) error {
	for waited := time.Duration(0); a.table.Full(); waited += memoryStep {
		a.flushEarly()
		if waited >= memoryWait {
			a.metrics.rejected.Inc()
			return fmt.Errorf(
				"%w: buffered samples fill the %d bytes of --write.max-buffered-bytes: the store is too slow, or the limit "+
					"too small", store.ErrUnavailable, a.config.Buffer.MaxBytes)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(memoryStep):
		}
	}
	return nil
}

// buffer puts the samples of a request into the memtable, and the index rows that are missing into the batch. number is
// that of the journal entry.
func (a *Appender) buffer(j *job, req *request.Write, ad admission, number uint64, result *request.Result) {
	w := a.table.NewWriter(memtable.Arrival{Time: ad.arrived, Entry: number, Admission: ad.Admission}, j)
	for i, s := range j.series {
		if s == nil {
			continue
		}
		rs := &req.Series[i]
		var refused request.Refusals
		j.series[i], refused = w.Append(j.slots[i], s, req.Samples[rs.From:rs.To])
		ad.count(result, req, i, refused)
	}
	w.Unlock() // to parse a histogram may take seconds
	j.eachHistogram(req, ad, result, func(series int, t int64, stored []byte) {
		j.point = mapping.AppendHistogramPoint(j.point[:0], uint32(t%mapping.HourMs), stored)
		j.series[series] = w.AppendHistogram(j.series[series], t, j.point)
	})
	if duplicates := w.Close(); duplicates > 0 {
		a.metrics.duplicates.Add(float64(duplicates))
	}
	if a.table.Pressed() {
		a.flushEarly()
	}
}
