package ingest

import (
	"fmt"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// admission is what a request is accepted by. A replay has that of the first time.
type admission struct {
	request.Admission
	limits  Limits
	arrived int64 // when the request came, in milliseconds since 1970; the clock may have stepped back since
	replay  bool  // of a journal: its series were admitted
}

// newAdmission is for a request that arrives now, by the clock; arrived is what counts.
func newAdmission(l Limits, arrived, now int64) admission {
	ad := admission{limits: l, arrived: arrived}
	ad.Latest, ad.RefuseInfinities = mapping.MaxTime, l.RefuseInfinities
	if l.Future > 0 {
		ad.Latest = min(ad.Latest, now+l.Future.Milliseconds())
	}
	return ad
}

// count adds what became of the samples of the series at a position to the result.
func (ad *admission) count(result *request.Result, req *request.Write, series int, refused request.Refusals) {
	rs := &req.Series[series]
	result.Written += rs.To - rs.From - refused.Times - refused.Infinities
	if refused.Times > 0 {
		result.Refuse(request.ReasonTimestamp, refused.Times, ad.timeError(req.LabelsOf(series), refused.Time))
	}
	if refused.Infinities > 0 {
		result.Refuse(request.ReasonInfinity, refused.Infinities, fmt.Errorf(
			"series %s: %w: infinite value, refused by --no-write.infinities",
			request.FormatSeries(req.LabelsOf(series)), mapping.ErrInvalid))
	}
}

// timeError says what is wrong with a refused time of a series.
func (ad *admission) timeError(labels []byte, at int64) error {
	err := mapping.CheckTime(at)
	if err == nil {
		ahead := time.Duration(at-ad.Latest)*time.Millisecond + ad.limits.Future
		err = fmt.Errorf("%w: timestamp %s is %s ahead of the clock, --write.max-future allows %s: check the sender's clock",
			mapping.ErrInvalid, time.UnixMilli(at).UTC().Format(time.RFC3339Nano), ahead, ad.limits.Future)
	}
	return fmt.Errorf("series %s: %w", request.FormatSeries(labels), err)
}
