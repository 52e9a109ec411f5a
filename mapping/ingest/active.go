package ingest

import (
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest/seriescache"
	"github.com/promtsd/promtsd/mapping/request"
)

// activity knows which series are active, that is, had samples within the last hour, and bounds how many are. It
// counts time in periods: so a series is noted once in a period, and not in each of its requests. It follows the
// monotonic clock: a jump of the wall clock would make newcomers of all series. A nil activity has no bound, and
// knows no series.
type activity struct {
	most    int64
	logger  *slog.Logger
	elapsed func() time.Duration // since some time, never running back

	seed   maphash.Seed
	period atomic.Uint32 // the present one, counted from 1
	count  atomic.Int64  // of active series
	logged atomic.Int64  // percent of most that was logged
	shards [64]activityShard
}

type activityShard struct {
	mu   sync.Mutex
	seen map[uint64]uint32 // the last period in which samples came, by the hash of a TSUID
}

const (
	activePeriod = 10 * time.Minute
	activeFor    = 6 // periods before the present one
)

// newActivity returns an activity of so many series at most; nil if that is 0.
func newActivity(most int, logger *slog.Logger) *activity {
	if most == 0 {
		return nil
	}
	begin := time.Now()
	a := &activity{
		most: int64(most), logger: logger, seed: maphash.MakeSeed(),
		elapsed: func() time.Duration { return time.Since(begin) },
	}
	a.period.Store(1)
	for i := range a.shards {
		a.shards[i].seen = make(map[uint64]uint32)
	}
	return a
}

// now is the present period. The first who asks in one lets go of series that are active no more.
func (a *activity) now() uint32 {
	if a == nil {
		return 0
	}
	before, now := a.period.Load(), uint32(a.elapsed()/activePeriod)+1
	if now > before && a.period.CompareAndSwap(before, now) {
		a.expire(now)
	}
	return max(before, now)
}

func (a *activity) expire(now uint32) {
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		before := len(s.seen)
		for hash, period := range s.seen {
			if period+activeFor < now {
				delete(s.seen, hash)
			}
		}
		a.count.Add(int64(len(s.seen) - before))
		if len(s.seen) < before/4 { // a map keeps the memory of what it had
			kept := make(map[uint64]uint32, len(s.seen))
			for hash, period := range s.seen {
				kept[hash] = period
			}
			s.seen = kept
		}
		s.mu.Unlock()
	}
	a.logged.Store(min(a.logged.Load(), a.level()))
}

// admit notes that samples of a series came in a period; false is that it was not active, and one more must not be,
// unless any is let in.
func (a *activity) admit(tsuid string, period uint32, any bool) bool {
	if a == nil {
		return true
	}
	hash := maphash.String(a.seed, tsuid)
	s := &a.shards[hash>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, active := s.seen[hash]; !active {
		if n := a.count.Add(1); n > a.most && !any {
			a.count.Add(-1)
			return false
		}
	}
	s.seen[hash] = period
	return true
}

// admitEntry is admit for the series of an entry, which is noted there.
func (a *activity) admitEntry(e *seriescache.Entry, period uint32, any bool) bool {
	if !a.admit(e.Series.TSUID(), period, any) {
		return false
	}
	e.SetActive(period)
	return true
}

// full says whether no newcomer can be admitted.
func (a *activity) full() bool { return a != nil && a.count.Load() >= a.most }

// level is the highest percent of most, of those that are logged, that the active series have reached.
func (a *activity) level() int64 {
	for _, percent := range []int64{100, 95, 80, 50} {
		if a.count.Load() >= (a.most*percent+99)/100 {
			return percent
		}
	}
	return 0
}

// log logs when the active series become many, once for each level.
func (a *activity) log() {
	if a == nil {
		return
	}
	level := a.level()
	for logged := a.logged.Load(); logged < level; logged = a.logged.Load() {
		if a.logged.CompareAndSwap(logged, level) {
			a.logger.Warn("many series are active: beyond --write.max-active-series new ones are refused", "percent", level,
				"active", a.count.Load(), "max", a.most)
		}
	}
}

// refuse refuses the samples of a newcomer.
func (a *activity) refuse(req *request.Write, position int, result *request.Result) {
	var err error
	if !result.HasExamples() { // of a flood there are very many
		err = fmt.Errorf(
			"series %s: %w: it is new, and %d series had samples within the last hour: --write.max-active-series allows %d",
			request.FormatSeries(req.LabelsOf(position)), mapping.ErrInvalid, a.count.Load(), a.most)
	}
	result.Refuse(request.ReasonActiveSeries, req.SamplesOf(position), err)
}
