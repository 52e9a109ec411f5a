package postings

import "slices"

// Candidates are series of a Set, by number: some, or all that there were.
type Candidates struct {
	numbers []uint32 // ascending; may be a list of the Set, to which others are appended meanwhile
	first   int      // how many, if numbers is nil
}

// All are all series that there are now.
func (s *Set) All() Candidates { return Candidates{first: s.Len()} }

// Len is how many there are.
func (c Candidates) Len() int {
	if c.numbers == nil {
		return c.first
	}
	return len(c.numbers)
}

func (c Candidates) at(i int) uint32 {
	if c.numbers == nil {
		return uint32(i)
	}
	return c.numbers[i]
}

// contain says whether f is true of any number of an ascending list that is among the candidates.
func (c Candidates) contain(list []uint32, f func(number uint32) bool) bool {
	if c.numbers == nil {
		return slices.ContainsFunc(list, func(number uint32) bool { return int(number) < c.first && f(number) })
	}
	return eachCommon(list, c.numbers, f)
}
