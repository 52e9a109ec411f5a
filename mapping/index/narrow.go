package index

import (
	"cmp"
	"context"
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// term is what series numbers must be in one of: of a metric, or of a tag with one of some values.
type term struct {
	lists [][]uint32 // ascending each
	size  int        // of all lists
}

func (t *term) add(list []uint32) {
	if len(list) > 0 {
		t.lists = append(t.lists, list)
		t.size += len(list)
	}
}

// union is the numbers of all lists, ascending.
func (t *term) union() []uint32 {
	if len(t.lists) == 1 {
		return t.lists[0]
	}
	out := make([]uint32, 0, t.size)
	for _, l := range t.lists {
		out = append(out, l...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intersect returns the numbers that are in both of two ascending lists, the first being the shorter one.
func intersect(short, long []uint32) []uint32 {
	out := make([]uint32, 0, len(short))
	for _, n := range short {
		// The next one is near: steps that double, then halving.
		step := 1
		for step < len(long) && long[step] < n {
			step *= 2
		}
		i, found := slices.BinarySearch(long[step/2:min(step+1, len(long))], n)
		if long = long[step/2+i:]; len(long) == 0 {
			break
		}
		if found {
			out = append(out, n)
			long = long[1:]
		}
	}
	return out
}

const (
	// A term is passed over where it would be more work to unite its lists than to compare each candidate.
	worthUniting = 4
	// The values of a tagk are judged all, to find their series, if they are so many fewer than the candidates.
	worthJudging = 8
)

// narrow finds the numbers of series active from first to last among which are all that pass p: by the metrics and tags
// whose values are known, the rarest first, and by those that have few enough values to judge them all. For the other
// tags, and repeated ones, the caller must look at the TSUIDs.
func (m *Memory) narrow(ctx context.Context, s *shelf, p *predicate, first, last Day) ([]uint32, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.kept > int(last) {
		return nil, nil
	}
	first = max(first, Day(m.kept))
	var terms []term
	if p.metrics != nil {
		var t term
		for _, u := range p.metrics {
			t.add(s.metrics[u])
		}
		terms = append(terms, t)
	}
	for _, test := range p.tags {
		if test.closed && !test.absent {
			terms = append(terms, s.term(test))
		}
	}
	found, all := intersectAll(terms)
	for _, test := range p.tags {
		values := 0
		for _, key := range test.keys {
			values += len(s.tags[key])
		}
		size := len(found)
		if all {
			size = s.len()
		}
		if test.closed || test.absent || values > size/worthJudging {
			continue
		}
		var judged []mapping.UID
		for _, key := range test.keys {
			judged = s.values(judged, key)
		}
		// The texts may have to be read from the store. What is added meanwhile need not be found.
		m.mu.RUnlock()
		err := test.judge(ctx, p.uids, judged)
		m.mu.RLock()
		if err != nil {
			return nil, err
		}
		t := s.term(test)
		if all {
			found, all = t.union(), false
		} else {
			found, _ = intersectAll([]term{{[][]uint32{found}, len(found)}, t})
		}
	}
	if all {
		found = make([]uint32, 0, s.len())
		for n := range uint32(s.len()) {
			if s.active(n, first, last) {
				found = append(found, n)
			}
		}
		return found, nil
	}
	active := make([]uint32, 0, len(found))
	for _, n := range found {
		if s.active(n, first, last) {
			active = append(active, n)
		}
	}
	return active, nil
}

// term is the series with one of the values that pass a test.
func (s *shelf) term(test *tagTest) (t term) {
	for _, key := range test.keys {
		values := s.tags[key]
		for v, passes := range test.verdicts {
			if passes {
				t.add(values[v])
			}
		}
	}
	return t
}

// intersectAll returns numbers among which are all those that are in every term; all says that there is no term.
func intersectAll(terms []term) (found []uint32, all bool) {
	slices.SortFunc(terms, func(a, b term) int { return cmp.Compare(a.size, b.size) })
	for i := range terms {
		switch t := &terms[i]; {
		case i == 0:
			found = t.union()
		case len(t.lists) == 1:
			found = intersect(found, t.lists[0])
		case t.size <= worthUniting*len(found):
			u := t.union()
			if len(u) < len(found) {
				u, found = found, u
			}
			found = intersect(found, u)
		}
	}
	return found, len(terms) == 0
}
