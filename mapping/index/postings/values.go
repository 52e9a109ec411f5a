package postings

import (
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// lists are the postings of some tagks, or those of the metrics where keys is nil.
func (s *Set) lists(keys []mapping.UID) (out []*lists) {
	if keys == nil {
		return []*lists{&s.metrics}
	}
	for _, key := range keys {
		if l := s.tags[key]; l != nil {
			out = append(out, l)
		}
	}
	return out
}

// Tagks returns the tagks of all series.
func (s *Set) Tagks() []mapping.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := make([]mapping.UID, 0, len(s.tags))
	for key := range s.tags {
		keys = append(keys, key)
	}
	return keys
}

// Values returns the values that the series have of some tagks, or the metrics where keys is nil. ok is false if they
// are more than most. A value that several of the tagks have may come several times.
func (s *Set) Values(keys []mapping.UID, most int) (values []mapping.UID, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.lists(keys) {
		if most -= len(l.values); most < 0 {
			return nil, false
		}
		if values == nil {
			values = l.values[:len(l.values):len(l.values)] // not copied, unless there are several
		} else {
			values = append(values, l.values...)
		}
	}
	return values, true
}

// HasRepeats says whether any series has one tag more than once.
func (s *Set) HasRepeats() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.repeats
}

// ActiveTagks returns the tagks of series that were active on a day of r.
func (s *Set) ActiveTagks(r DayRun) (keys []mapping.UID) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, l := range s.tags {
		for _, list := range l.series {
			if s.anyActive(list, r) {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// HasOtherMetric says whether a series that was active on a day of r has a metric other than some.
func (s *Set) HasOtherMetric(than []mapping.UID, r DayRun) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for metric, list := range s.metrics.series {
		if !slices.Contains(than, metric) && s.anyActive(list, r) {
			return true
		}
	}
	return false
}

// ActiveValues appends those of some values (see Values) that a candidate has which was active on a day of r and
// passes. passes must be quick: the Set is locked. nil lets all pass.
func (s *Set) ActiveValues(dst, keys, values []mapping.UID, among Candidates, r DayRun,
	passes func(tsuid []byte, value mapping.UID) bool,
) []mapping.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := s.lists(keys)
	for _, value := range values {
		if slices.ContainsFunc(all, func(l *lists) bool {
			return among.contain(l.series[value], func(number uint32) bool {
				return s.active(number, r) && (passes == nil || passes(s.tsuid(number), value))
			})
		}) {
			dst = append(dst, value)
		}
	}
	return dst
}
