package uid

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/promtsd/promtsd/mapping"
)

// ErrLimited marks a name that got no UID because of Limits. A later attempt may get one.
var ErrLimited = errors.New("too many new names")

// ErrUnassigned marks a name that has no UID where none is to be made.
var ErrUnassigned = errors.New("no UID")

// claimant is who wants the UID of a name.
type claimant uint8

const (
	known    claimant = iota // a sender of whose series most are known
	newcomer                 // one of whose series most are new, see Limits
	finder                   // one who gets no new UID
)

// Limits bound how fast names use up UIDs, which are never given back: one sender that puts a random value into a label
// takes all tagv UIDs of three bytes within minutes. A name that has a UID is not concerned. Newcomers, which are
// senders of whose series most are new, have a share of their own, as large as that of all others: a flood of them
// stops no sender that was there before.
type Limits struct {
	PerSecond int              // names that get a UID, of all kinds together, for each of the two shares; 0: any number
	PerHour   int              // the same
	Now       func() time.Time // default: time.Now
}

// reservePercent of the UIDs of a kind are kept for senders that are no newcomers.
const reservePercent = 5

// share is what is left of the limits for newcomers, or for others.
type share struct {
	Limits
	second, hour *rate.Limiter
}

func newShare(l Limits) *share {
	s := &share{Limits: l, second: rate.NewLimiter(rate.Inf, 0), hour: rate.NewLimiter(rate.Inf, 0)}
	if l.PerSecond > 0 {
		s.second = rate.NewLimiter(rate.Limit(l.PerSecond), l.PerSecond)
	}
	if l.PerHour > 0 {
		s.hour = rate.NewLimiter(rate.Limit(float64(l.PerHour)/time.Hour.Seconds()), l.PerHour)
	}
	return s
}

// take takes a name from the share.
func (s *share) take() error {
	now := s.Now()
	switch {
	case !s.second.AllowN(now, 1):
		return fmt.Errorf("%w: more than %d in a second (--write.max-new-names-per-second)", ErrLimited, s.PerSecond)
	case !s.hour.AllowN(now, 1):
		return fmt.Errorf("%w: more than %d in an hour (--write.max-new-names-per-hour)", ErrLimited, s.PerHour)
	}
	return nil
}

// admit resolves claims that would need a new UID and must not have one.
func (r *Registry) admit(claims []*claim) {
	for _, c := range claims {
		k := c.key.kind
		if c.id != 0 || r.exhausted[k].Load() {
			continue
		}
		if c.by == finder {
			c.result.Err = fmt.Errorf("%s name %.100q: %w", k, c.key.text, ErrUnassigned)
			continue
		}
		share, err := r.others, error(nil)
		if c.by == newcomer {
			share = r.newcomers
			if r.fill[k].Load() >= 100-reservePercent {
				err = fmt.Errorf("%w: the last %d %% of the %s UIDs are kept for senders of whose series most are known",
					ErrLimited, reservePercent, k)
			}
		}
		if err == nil {
			err = share.take()
		}
		if err != nil {
			r.metrics.limited[k].Inc()
			c.result.Err = fmt.Errorf("%s name %.100q has no UID: %w", k, c.key.text, err)
		}
	}
}

// tellFill logs when so many percent of a kind's UIDs are given away, once for each level.
func (r *Registry) tellFill(kind mapping.Kind, last, largest int64) {
	for _, percent := range []int32{100 - reservePercent, 80, 50} {
		if float64(last) < float64(largest)*float64(percent)/100 {
			continue
		}
		for told := r.fill[kind].Load(); told < percent; told = r.fill[kind].Load() {
			if r.fill[kind].CompareAndSwap(told, percent) {
				r.logger.Warn(
					"many UIDs are given away, and none comes back: see which label has so many values, before new series are refused",
					"kind", kind, "percent", percent, "given", last, "of", largest)
				return
			}
		}
		return
	}
}
