package postings

import (
	"cmp"
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// AnyOf is a condition: a series has any of some tagks with any of some values, or, where Keys is nil, any of some
// metrics.
type AnyOf struct{ Keys, Values []mapping.UID }

// worthUniting: a condition is passed over where it would be more than so many times the work to unite its lists than
// to look at each candidate.
const worthUniting = 4

// Intersect returns candidates, among which are all those of within that meet all conditions, and maybe others. It
// begins with the rarest. reserve is told of the bytes of memory that the lists take which are made, before they are
// made; its error comes back. No lock is held meanwhile.
func (s *Set) Intersect(within Candidates, conditions []AnyOf, reserve func(bytes int) error) (Candidates, error) {
	unions := s.unions(conditions)
	if within.numbers != nil {
		unions = append(unions, union{[][]uint32{within.numbers}, len(within.numbers)})
	}
	if len(unions) == 0 {
		return within, nil
	}
	if err := reserve(intersectBytes(unions)); err != nil {
		return Candidates{}, err
	}
	return Candidates{numbers: intersectAll(unions)}, nil
}

// unions are the lists of some conditions, as they are now. A condition that all series meet is left out.
func (s *Set) unions(conditions []AnyOf) (unions []union) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range conditions {
		var u union
		for _, l := range s.lists(c.Keys) {
			for _, value := range c.Values {
				u.add(l.series[value])
			}
		}
		if c.Keys != nil || u.size < len(s.at) { // each series has one metric
			unions = append(unions, u)
		}
	}
	return unions
}

// union is the numbers that are in any of some ascending lists.
type union struct {
	lists [][]uint32
	size  int // of all lists
}

func (u *union) add(list []uint32) {
	if len(list) > 0 {
		u.lists = append(u.lists, list)
		u.size += len(list)
	}
}

// merge returns the numbers, ascending, never nil.
func (u *union) merge() []uint32 {
	if len(u.lists) == 1 {
		return u.lists[0]
	}
	out := make([]uint32, 0, u.size)
	for _, l := range u.lists {
		out = append(out, l...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intersectBytes is the memory that intersectAll needs at most.
func intersectBytes(unions []union) (bytes int) {
	const numberBytes = 4
	least := slices.MinFunc(unions, func(a, b union) int { return cmp.Compare(a.size, b.size) }).size
	for _, u := range unions {
		if len(u.lists) > 1 && u.size <= worthUniting*least {
			bytes += u.size * numberBytes
		}
	}
	return bytes + (len(unions)-1)*least*numberBytes
}

// intersectAll returns numbers, never nil, among which are all those that are in every union.
func intersectAll(unions []union) (found []uint32) {
	slices.SortFunc(unions, func(a, b union) int { return cmp.Compare(a.size, b.size) })
	for i := range unions {
		switch u := &unions[i]; {
		case i == 0:
			found = u.merge()
		case len(u.lists) == 1:
			found = intersect(found, u.lists[0])
		case u.size <= worthUniting*len(found):
			merged := u.merge()
			if len(merged) < len(found) {
				merged, found = found, merged
			}
			found = intersect(found, merged)
		}
	}
	return found
}

// intersect returns the numbers that are in both of two ascending lists, the first being the shorter one.
func intersect(short, long []uint32) []uint32 {
	out := make([]uint32, 0, len(short))
	eachCommon(short, long, func(n uint32) bool {
		out = append(out, n)
		return false
	})
	return out
}

// eachCommon calls f with the numbers that are in both of two ascending lists until f returns true, and returns that.
func eachCommon(a, b []uint32, f func(number uint32) bool) bool {
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
	// The number is near: steps that double, then halving.
	step := 1
	for step < len(list) && list[step] < number {
		step *= 2
	}
	i, _ := slices.BinarySearch(list[step/2:min(step+1, len(list))], number)
	return list[step/2+i:]
}
