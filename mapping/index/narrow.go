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
	meet(short, long, func(n uint32) bool {
		out = append(out, n)
		return false
	})
	return out
}

// meet calls f with the numbers that are in both of two ascending lists until it returns true, and returns that.
func meet(a, b []uint32, f func(number uint32) bool) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = from(a, b[0])
		case a[0] > b[0]:
			b = from(b, a[0])
		case f(a[0]):
			return true
		default:
			a, b = a[1:], b[1:]
		}
	}
	return false
}

// from is an ascending list from a number on, which is above its first.
func from(list []uint32, number uint32) []uint32 {
	// It is near: steps that double, then halving.
	step := 1
	for step < len(list) && list[step] < number {
		step *= 2
	}
	i, _ := slices.BinarySearch(list[step/2:min(step+1, len(list))], number)
	return list[step/2+i:]
}

const (
	// A term is passed over where it would be more work to unite its lists than to compare each candidate.
	worthUniting = 4
	// The values of a tagk are judged all, to find their series, if they are so many fewer than the candidates.
	worthJudging = 8
	// The values of a label are looked for by postings if they are so many fewer than the candidates: series that have one
	// are found soon, or not at all.
	worthMeeting = 64
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

// contain says whether f is true of any number of an ascending list that is among the candidates.
func (c candidates) contain(list []uint32, f func(number uint32) bool) bool {
	if c.numbers == nil {
		return slices.ContainsFunc(list, func(number uint32) bool { return int(number) < c.first && f(number) })
	}
	return meet(list, c.numbers, f)
}

// judgedBytes is what judging a value takes.
const judgedBytes = 64

// narrow finds series among which are all that pass p: by the metrics and tags whose values are known, the rarest
// first, and by those that have few enough values to judge them all. For the other tags, and repeated ones, the caller
// must look at the TSUIDs, and at their days. take is told of memory before it is used.
func (m *Memory) narrow(ctx context.Context, s *shelf, p *predicate, take func(bytes int) error) (candidates, error) {
	terms, total := m.knownTerms(s, p)
	if err := take(intersectingBytes(terms)); err != nil {
		return candidates{}, err
	}
	found, all := intersectAll(terms)
	for _, test := range p.tags {
		size := len(found)
		if all {
			size = total
		}
		if test.closed || test.absent {
			continue
		}
		judged := m.fewValues(s, test.keys, size/worthJudging)
		if judged == nil {
			continue
		}
		if err := take(len(judged) * judgedBytes); err != nil {
			return candidates{}, err
		}
		// The texts may have to be read from the store. What is added meanwhile need not be found.
		if err := test.judge(ctx, p.uids, judged); err != nil {
			return candidates{}, err
		}
		test.judged = true
		m.mu.RLock()
		t := s.term(test)
		m.mu.RUnlock()
		terms = []term{t}
		if !all {
			terms = append(terms, term{[][]uint32{found}, len(found)})
		}
		if err := take(intersectingBytes(terms)); err != nil {
			return candidates{}, err
		}
		found, all = intersectAll(terms)
	}
	if all {
		return candidates{first: total}, nil
	}
	return candidates{numbers: found}, nil
}

// knownTerms are the terms of the metrics and tags of p whose values are known, and how many series there are. What is
// appended to their lists later does not matter.
func (m *Memory) knownTerms(s *shelf, p *predicate) (terms []term, total int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
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
	return terms, s.len()
}

// fewValues are the values of some tagks, nil if they are more than most.
func (m *Memory) fewValues(s *shelf, keys []mapping.UID, most int) []mapping.UID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := 0
	for _, key := range keys {
		n += len(s.tags[key])
	}
	if n > most {
		return nil
	}
	values := make([]mapping.UID, 0, n)
	for _, key := range keys {
		values = s.values(values, key)
	}
	return values
}

// keptFrom is the first day, from one on, that is of interest.
func (m *Memory) keptFrom(first mapping.Day) mapping.Day {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return max(first, mapping.Day(min(m.kept, never-1)))
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

// intersectingBytes is the memory that intersectAll takes at most.
func intersectingBytes(terms []term) (bytes int) {
	const numberBytes = 4
	if len(terms) == 0 {
		return 0
	}
	least := slices.MinFunc(terms, func(a, b term) int { return cmp.Compare(a.size, b.size) }).size
	for _, t := range terms {
		if len(t.lists) > 1 && t.size <= worthUniting*least {
			bytes += t.size * numberBytes
		}
	}
	return bytes + (len(terms)-1)*least*numberBytes
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
