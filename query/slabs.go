package query

import "slices"

// slabs is memory for byte slices. What was handed out stays where it is.
type slabs struct {
	all  [][]byte
	used int // all[:used] have something; the last of them has room
}

const slabBytes = 256 << 10

func (s *slabs) reset() {
	for i := range s.all[:s.used] {
		s.all[i] = s.all[i][:0]
	}
	s.used = 0
}

// clone is a copy of b that is valid until reset.
func (s *slabs) clone(b []byte) []byte {
	for s.used == 0 || cap(s.all[s.used-1])-len(s.all[s.used-1]) < len(b) {
		if s.used == len(s.all) || cap(s.all[s.used]) < len(b) {
			s.all = slices.Insert(s.all, s.used, make([]byte, 0, max(slabBytes, len(b))))
		}
		s.used++
	}
	last := &s.all[s.used-1]
	at := len(*last)
	*last = append(*last, b...)
	return (*last)[at:len(*last):len(*last)]
}
