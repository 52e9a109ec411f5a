package query

import "slices"

// slabs is memory for byte slices. What was handed out stays where it is.
type slabs struct {
	all   [][]byte
	used  int // all[:used] have something; the last of them has room
	bytes int // of all
}

const slabBytes = 256 << 10

func (s *slabs) reset() {
	for i := range s.all[:s.used] {
		s.all[i] = s.all[i][:0]
	}
	s.used = 0
}

// release lets go of the memory.
func (s *slabs) release() { *s = slabs{} }

// hasRoom says whether the last slab has room for n bytes, or the next one has.
func (s *slabs) hasRoom(n int) bool {
	return s.used > 0 && cap(s.all[s.used-1])-len(s.all[s.used-1]) >= n || s.used < len(s.all) && cap(s.all[s.used]) >= n
}

// growth is by how many bytes the memory grows for n bytes.
func (s *slabs) growth(n int) int {
	if s.hasRoom(n) {
		return 0
	}
	return max(slabBytes, n)
}

// make returns an empty slice with room for n bytes, valid until reset.
func (s *slabs) make(n int) []byte {
	if grow := s.growth(n); grow > 0 {
		s.all = slices.Insert(s.all, s.used, make([]byte, 0, grow))
		s.bytes += grow
	}
	if s.used == 0 || cap(s.all[s.used-1])-len(s.all[s.used-1]) < n {
		s.used++
	}
	last := &s.all[s.used-1]
	at := len(*last)
	*last = (*last)[:at+n]
	return (*last)[at : at : at+n]
}
