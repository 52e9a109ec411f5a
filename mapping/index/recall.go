package index

import (
	"context"

	"github.com/promtsd/promtsd/mapping"
)

// narrow is the memory's, asked once.
func (s *selection) narrow(ctx context.Context) (candidates, error) {
	if s.narrowed == nil {
		found, err := s.r.Memory.narrow(ctx, s.shelf, s.p, s.take)
		if err != nil {
			return candidates{}, err
		}
		s.narrowed = &found
	}
	return *s.narrowed, nil
}

// fromMemory hands on the series that were active in the range on the shelf.
func (s *selection) fromMemory(ctx context.Context) error {
	m := s.r.Memory
	found, err := s.narrow(ctx)
	if err != nil {
		return err
	}
	for i, n := 0, found.len(); i < n; {
		m.mu.RLock()
		for ; i < n && len(s.ends) < s.pageSize; i++ {
			if number := found.at(i); s.shelf.active(number, s.first, s.last) {
				s.page = append(s.page, s.shelf.tsuid(number)...)
				s.ends = append(s.ends, len(s.page))
			}
		}
		m.mu.RUnlock()
		s.candidates += len(s.ends)
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// recallDays notes the days on which the series found were active.
func (s *selection) recallDays(shelf *shelf, first, last mapping.Day) {
	changes := make([]int, int(last)-int(first)+2) // of how many series are active, from the day before
	runs := make([]DayRun, 0, len(s.found))
	for i := range s.found {
		from := len(runs)
		runs = shelf.appendDays(runs, shelf.slots[shelf.slot(s.found[i].TSUID)]-1, first, last)
		s.found[i].Days = Days(runs[from:len(runs):len(runs)])
		for _, r := range runs[from:] {
			changes[r.First-first]++
			changes[int(r.Last)-int(first)+1]--
		}
	}
	active := 0
	for i, change := range changes {
		if active += change; active > 0 {
			s.days[first+mapping.Day(i)] = struct{}{}
		}
	}
}

// recallMetrics counts the active series of the metrics found.
func (s *selection) recallMetrics(shelf *shelf, first, last mapping.Day) {
	const few = 64 // of so many times as many it does not matter how many
	schema := shelf.schema
	found := make(map[mapping.UID]int)
	for i := range s.found {
		metric, _ := schema.ParseUID(mapping.Metric, s.found[i].TSUID[:schema.MetricWidth])
		found[metric]++
	}
	for metric, n := range found {
		list := shelf.metrics[metric]
		s.metrics[metric] = len(list)
		if len(list)/few > n {
			continue
		}
		active := 0
		for _, number := range list {
			if shelf.active(number, first, last) {
				active++
			}
		}
		s.metrics[metric] = active
	}
}

// metricsOf lists the metrics of a shelf.
func (m *Memory) metricsOf(s *shelf) []mapping.UID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]mapping.UID, 0, len(s.metrics))
	for u := range s.metrics {
		out = append(out, u)
	}
	return out
}
