package ingest

import (
	"fmt"
	"math"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// terms are those on which a request is accepted. A replay has the terms of the first time.
type terms struct {
	limits Limits
	now    int64 // when the request came, in milliseconds since 1970; the clock may have stepped back since
	latest int64 // samples after this time are refused
	replay bool  // of a journal: its series were admitted
}

func newTerms(l Limits, now int64) terms {
	t := terms{limits: l, now: now, latest: mapping.MaxTime}
	if l.Future > 0 {
		t.latest = min(t.latest, now+l.Future.Milliseconds())
	}
	return t
}

// refusals counts the samples of one series that were refused.
type refusals struct {
	times, infinities int
	time              int64 // the first refused time
}

// takes says whether a sample is accepted, and counts it if not.
func (t *terms) takes(s request.Sample, r *refusals) bool {
	if s.T < 0 || s.T > t.latest {
		if r.times++; r.times == 1 {
			r.time = s.T
		}
		return false
	}
	if t.limits.RefuseInfinities && math.IsInf(s.V, 0) {
		r.infinities++
		return false
	}
	return true
}

// tell adds what became of a series' samples to the result.
func (r refusals) tell(result *request.Result, rs request.Series, t terms) {
	result.Written += rs.To - rs.From - r.times - r.infinities
	if r.times > 0 {
		result.Refuse(request.ReasonTimestamp, r.times, t.timeError(rs.Labels, r.time))
	}
	if r.infinities > 0 {
		result.Refuse(request.ReasonInfinity, r.infinities, fmt.Errorf(
			"series %s: %w: infinite value, refused by --no-write.infinities",
			request.FormatSeries(rs.Labels), mapping.ErrInvalid))
	}
}

// timeError says what is wrong with a refused time of a series.
func (t *terms) timeError(raw []byte, at int64) error {
	err := mapping.CheckTime(at)
	if err == nil {
		err = fmt.Errorf("%w: timestamp %s is %s ahead of the clock, --write.max-future allows %s: check the sender's clock",
			mapping.ErrInvalid, time.UnixMilli(at).UTC().Format(time.RFC3339Nano),
			(time.Duration(at-t.latest)*time.Millisecond + t.limits.Future), t.limits.Future)
	}
	return fmt.Errorf("series %s: %w", request.FormatSeries(raw), err)
}
