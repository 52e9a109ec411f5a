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

// candidates are series by number: some, or the first ones of a shelf.
type candidates struct {
	numbers []uint32 // ascending; others may be appended to it meanwhile
	first   int      // how many, if numbers is nil
}

func (c candidates) len() int {
	if c.numbers == nil {
		return c.first
	}
	return len(c.numbers)
}

func (c candidates) at(i int) uint32 {
	if c.numbers == nil {
		return uint32(i)
	}
	return c.numbers[i]
}

// narrow finds series among which are all that pass p: by the metrics and tags whose values are known, the rarest first, and
// by those that have few enough values to judge them all. For the other tags, and repeated ones, the caller must look at the
// TSUIDs; and at their days, from the one that is returned to last.
func (m *Memory) narrow(
	ctx context.Context, s *shelf, p *predicate, first, last Day,
) (out candidates, from Day, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	first, any := m.keptFrom(first, last)
	if !any {
		return candidates{}, first, nil
	}
	var terms []term
	if p.metrics != nil {
		var t term
		for _, u := range p.metrics {
			t.add(s.metrics[u])
		}
		if t.size < s.len() { // each is of one metric
			terms = append(terms, t)
		}
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
			return candidates{}, first, err
		}
		t := s.term(test)
		if all {
			found, all = t.union(), false
		} else {
			found, _ = intersectAll([]term{{[][]uint32{found}, len(found)}, t})
		}
	}
	if all {
		return candidates{first: s.len()}, first, nil
	}
	return candidates{numbers: found}, first, nil
}

// keptFrom is the first day of some that are of interest. mu must be held.
func (m *Memory) keptFrom(first, last Day) (from Day, any bool) {
	return max(first, Day(min(m.kept, never-1))), m.kept <= int(last)
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
