package store

// PrefixRange is the range of all keys that begin with prefix.
func PrefixRange(prefix []byte) Range { return Range{Start: prefix, Stop: PrefixEnd(prefix)} }

// PrefixEnd returns the first key after all keys that begin with prefix. It returns nil, the table's end, if there is
// no such key: all bytes of prefix are 0xff. The result shares no memory with prefix.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
