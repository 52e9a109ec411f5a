package index

import (
	"context"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
)

const (
	// worthTesting: all values of a tagk are tested, to find their series, if they are so many times fewer than the
	// candidates.
	worthTesting = 8
	// testedBytes is what testing a value takes.
	testedBytes = 64
)

// intersect finds, once, series in memory among which are all that pass the predicate: by the metrics and tags whose
// values are known, and by those tags that have few enough values to test them all. For the other tags, and repeated
// ones, the caller must look at the TSUIDs, and at the days.
func (s *selection) intersect(ctx context.Context) (postings.Candidates, error) {
	if s.intersected != nil {
		return *s.intersected, nil
	}
	var known []postings.AnyOf
	if s.p.metrics != nil {
		known = append(known, postings.AnyOf{Values: s.p.metrics})
	}
	for _, t := range s.p.tags {
		if t.closed && !t.absent {
			known = append(known, t.passing())
		}
	}
	found, err := s.postings.Intersect(s.postings.All(), known, s.take)
	if err != nil {
		return found, err
	}
	for _, t := range s.p.tags {
		if t.closed || t.absent {
			continue
		}
		values, few := s.postings.Values(t.keys, found.Len()/worthTesting)
		if !few {
			continue
		}
		if err := s.take(len(values) * testedBytes); err != nil {
			return found, err
		}
		// Texts may be read from the store. Series that are added meanwhile need not be found.
		if err := t.test(ctx, s.p.uids, values); err != nil {
			return found, err
		}
		t.complete = true
		if found, err = s.postings.Intersect(found, []postings.AnyOf{t.passing()}, s.take); err != nil {
			return found, err
		}
	}
	s.intersected = &found
	return found, nil
}

// passing is the condition of a test whose passing values are all known.
func (t *tagTest) passing() postings.AnyOf {
	c := postings.AnyOf{Keys: t.keys}
	for value, passes := range t.matched {
		if passes {
			c.Values = append(c.Values, value)
		}
	}
	return c
}

// fromMemory hands on the series in memory that were active in the range.
func (s *selection) fromMemory(ctx context.Context) error {
	found, err := s.intersect(ctx)
	if err != nil {
		return err
	}
	for next := 0; next < found.Len(); {
		s.page, s.ends, next = s.postings.AppendActive(s.page, s.ends, s.pageSize, found, next, s.dayRun())
		s.candidates += len(s.ends)
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setDays notes the days on which the series found in memory were active, and on which any was.
func (s *selection) setDays() {
	tsuids := make([][]byte, len(s.found))
	for i := range s.found {
		tsuids[i] = s.found[i].TSUID
	}
	changes := make([]int, int(s.last)-int(s.first)+2) // of how many series are active, from the day before
	for i, days := range s.postings.DaysOf(tsuids, s.dayRun()) {
		s.found[i].Days = days
		for _, r := range days {
			changes[r.First-s.first]++
			changes[int(r.Last)-int(s.first)+1]--
		}
	}
	active := 0
	for i, change := range changes {
		if active += change; active > 0 {
			s.days[s.first+mapping.Day(i)] = struct{}{}
		}
	}
}

// countMetrics counts the active series of the metrics of the series found in memory. Where there are so many more that
// the number does not matter, those are counted too that were not active.
func (s *selection) countMetrics() {
	const few = 64
	schema := s.r.Settings.Schema
	found := make(map[mapping.UID]int)
	for i := range s.found {
		metric, _ := schema.ParseUID(mapping.Metric, s.found[i].TSUID[:schema.MetricWidth])
		found[metric]++
	}
	for metric, n := range found {
		s.metrics[metric] = s.postings.CountOfMetric(metric, few*(n+1)-1, s.dayRun())
	}
}

func (s *selection) dayRun() postings.DayRun { return postings.DayRun{First: s.first, Last: s.last} }
