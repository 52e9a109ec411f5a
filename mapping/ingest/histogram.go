package ingest

import (
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// Native histograms are stored after the samples of their request. They are few and large: each is parsed and checked,
// and encoded anew as cells hold it.

// eachHistogram calls f with each of a request's histograms that is accepted: the position of its series, its time in
// milliseconds since 1970, and what cells hold, which is valid until f returns.
func (j *job) eachHistogram(
	req *request.Write, ad admission, result *request.Result, f func(series int, t int64, stored []byte),
) {
	for _, h := range req.Histograms {
		if j.series[h.Series] == nil {
			continue // refused with its series
		}
		if t, stored, ok := j.encodeHistogram(req, h, ad, result); ok {
			f(h.Series, t, stored)
			result.Histograms++
		}
	}
}

// encodeHistogram makes of a histogram what cells hold. ok is false if it is refused.
func (j *job) encodeHistogram(
	req *request.Write, h request.Histogram, ad admission, result *request.Result,
) (t int64, stored []byte, ok bool) {
	reason := request.ReasonHistogram
	parsed, t, err := mapping.ParseHistogram(h.Message)
	if err == nil {
		j.stored, err = parsed.AppendStored(j.stored[:0])
	}
	if err != nil {
		err = fmt.Errorf("series %s: %w", request.FormatSeries(req.LabelsOf(h.Series)), err)
	} else if t < 0 || t > ad.Latest {
		reason, err = request.ReasonTimestamp, ad.timeError(req.LabelsOf(h.Series), t)
	}
	if err != nil {
		result.Refuse(reason, 1, err)
		return 0, nil, false
	}
	return t, j.stored, true
}
