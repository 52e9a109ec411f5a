package seriescache

import (
	"encoding/binary"
	"slices"
	"sync"
)

// symbols numbers the symbols of remote write 2.0, so that a few numbers identify a series, and its label bytes need
// not be made to compare them. Each request brings its own list of symbols, in an order of its own.
//
// When there are too many, which takes long if most of them stay the same, the numbers begin anew, and with them an
// epoch: a number means a symbol only together with its epoch.
type symbols struct {
	most int // symbols of an epoch; its bytes are bounded by 64 for each of these

	mu      sync.RWMutex
	epoch   uint32
	bytes   int
	numbers map[string]uint32
}

const (
	leastSymbols = 4096
	symbolBytes  = 64
)

func newSymbols(most int) *symbols {
	return &symbols{most: max(most, leastSymbols), numbers: make(map[string]uint32)}
}

// number returns the numbers of a list of symbols, in the memory of dst, and their epoch.
func (s *symbols) number(dst []uint32, list [][]byte) (numbers []uint32, epoch uint32) {
	s.mu.RLock()
	numbers, epoch = s.appendNumbers(dst[:0], list), s.epoch
	s.mu.RUnlock()
	if len(numbers) == len(list) {
		return numbers, epoch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, symbol := range list {
		size += len(symbol)
	}
	if len(s.numbers) > 0 && (len(s.numbers)+len(list) > s.most || s.bytes+size > s.most*symbolBytes) {
		s.numbers, s.bytes = make(map[string]uint32), 0
		s.epoch++
	}
	for _, symbol := range list {
		if _, ok := s.numbers[string(symbol)]; !ok {
			s.numbers[string(symbol)] = uint32(len(s.numbers))
			s.bytes += len(symbol)
		}
	}
	return s.appendNumbers(numbers[:0], list), s.epoch
}

// appendNumbers appends the numbers of the symbols of a list up to the first that has none.
func (s *symbols) appendNumbers(dst []uint32, list [][]byte) []uint32 {
	for _, symbol := range list {
		number, ok := s.numbers[string(symbol)]
		if !ok {
			break
		}
		dst = append(dst, number)
	}
	return dst
}

// refsKeyHead is how many bytes a key has before its numbers.
const refsKeyHead = 5

// isRefsKey says whether a key is the one that appendRefsKey makes, of an even number of references.
func isRefsKey(key []byte, epoch uint32, numbers, refs []uint32) bool {
	if len(key) != refsKeyHead+4*len(refs) || key[0] != 0 || binary.LittleEndian.Uint32(key[1:]) != epoch {
		return false
	}
	key = key[refsKeyHead:]
	for ; len(refs) >= 2; refs, key = refs[2:], key[8:] {
		if binary.LittleEndian.Uint64(key) != uint64(numbers[refs[0]])|uint64(numbers[refs[1]])<<32 {
			return false
		}
	}
	return true
}

// appendRefsKey appends the key of a series whose labels are references: no label bytes begin with a zero.
//
//	0 | epoch, 4 bytes | number, 4 bytes | ...
func appendRefsKey(dst []byte, epoch uint32, numbers, refs []uint32) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, 0), epoch)
	at := len(dst)
	dst = slices.Grow(dst, 4*len(refs))[:at+4*len(refs)]
	for i, ref := range refs {
		binary.LittleEndian.PutUint32(dst[at+4*i:], numbers[ref])
	}
	return dst
}
