package client

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Region is one region of a table, as it was when it was looked up. It is never changed.
type Region struct {
	Table string
	Name  []byte // full name
	Start []byte // inclusive; empty: from the table's start
	End   []byte // exclusive; empty: to the table's end
	// Server serves it; its Host is empty when none does at the moment, as while the region moves.
	Server wire.ServerName

	id   uint64
	addr string // of Server, host:port
	// redirected says that a server told that the region is at Server, not hbase:meta.
	redirected bool

	invalid atomic.Bool // it turned out to be wrong: whoever needs its rows looks them up again
	used    atomic.Bool // somebody needed it since regions were evicted last
}

// Encoded is the short name that HBase's logs and pages use.
func (r *Region) Encoded() string { return wire.EncodedName(r.Name) }

// holds reports whether row belongs into the region.
func (r *Region) holds(row []byte) bool {
	return bytes.Compare(row, r.Start) >= 0 && !r.endsBefore(row)
}

// endsBefore reports whether row lies behind the region.
func (r *Region) endsBefore(row []byte) bool { return len(r.End) > 0 && bytes.Compare(row, r.End) >= 0 }

// precedes reports whether the rows just below row are the region's. An empty row stands for the table's end.
func (r *Region) precedes(row []byte) bool {
	if len(row) == 0 {
		return len(r.End) == 0
	}
	return bytes.Compare(r.Start, row) < 0 && (len(r.End) == 0 || bytes.Compare(row, r.End) <= 0)
}

// isHole reports that it is no region, but a place between two, where there is none at the moment.
func (r *Region) isHole() bool { return len(r.Name) == 0 }

// is reports whether two regions are the same one, and hence hold the same rows, wherever they are.
func (r *Region) is(other *Region) bool {
	return r == other || bytes.Equal(r.Name, other.Name) && !r.isHole()
}

// at is the region on another server.
func (r *Region) at(server wire.ServerName) *Region {
	return &Region{
		Table: r.Table, Name: r.Name, Start: r.Start, End: r.End, id: r.id,
		Server: server, addr: server.Addr(), redirected: true,
	}
}

// info is what the master calls the region.
func (r *Region) info() wire.RegionInfo {
	return wire.RegionInfo{ID: r.id, Table: wire.ParseTableName(r.Table), StartKey: r.Start, EndKey: r.End}
}

// regionMap is those regions of a table that are known, in order. What lies between them is not known.
type regionMap struct {
	regions []*Region
	heads   []uint64 // of the regions' starts, by which rows are told apart sooner than by their bytes
}

// head is the first bytes of a row, which compare as it does where they differ.
func head(row []byte) uint64 {
	if len(row) >= 8 {
		return binary.BigEndian.Uint64(row)
	}
	var padded [8]byte
	copy(padded[:], row)
	return binary.BigEndian.Uint64(padded[:])
}

// index is that of the last region that does not start behind row, -1 if all do. It does not allocate.
func (m *regionMap) index(row []byte) int {
	wanted := head(row)
	low, high := 0, len(m.heads)
	for low < high {
		mid := int(uint(low+high) / 2)
		if h := m.heads[mid]; h < wanted || h == wanted && bytes.Compare(m.regions[mid].Start, row) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// find returns the region that row belongs into, nil where none is known.
func (m *regionMap) find(row []byte) *Region {
	if i := m.index(row); i >= 0 && m.regions[i].holds(row) {
		return m.regions[i]
	}
	return nil
}

// before returns the region in which the rows below row end, nil where none is known. An empty row stands for the
// table's end.
func (m *regionMap) before(row []byte) *Region {
	i := len(m.regions) - 1
	if len(row) > 0 {
		i = m.index(row)
		if i >= 0 && bytes.Equal(m.regions[i].Start, row) {
			i--
		}
	}
	if i >= 0 && m.regions[i].precedes(row) {
		return m.regions[i]
	}
	return nil
}

// insert adds a region behind the i-th.
func (m *regionMap) insert(i int, r *Region) {
	m.regions = slices.Insert(m.regions, i+1, r)
	m.heads = slices.Insert(m.heads, i+1, head(r.Start))
}

// replace puts regions that were found next to each other, in order, where others were until now. whole says that none
// follows them. moved is the number of those that are new, or at another server, as far as their places were known.
func (m *regionMap) replace(found []*Region, whole bool) (moved int) {
	if len(found) == 0 {
		return 0
	}
	for _, r := range found {
		if old := m.find(r.Start); old != nil && !(old.is(r) && old.Server == r.Server) {
			moved++
		}
	}
	from := m.index(found[0].Start)
	if from < 0 || !m.regions[from].holds(found[0].Start) {
		from++
	}
	to := len(m.regions)
	if end := found[len(found)-1].End; !whole && len(end) > 0 {
		for to = from; to < len(m.regions) && bytes.Compare(m.regions[to].Start, end) < 0; to++ {
			continue
		}
	}
	heads := make([]uint64, len(found))
	for i, r := range found {
		heads[i] = head(r.Start)
	}
	m.regions = slices.Replace(m.regions, from, to, found...)
	m.heads = slices.Replace(m.heads, from, to, heads...)
	return moved
}

// put makes another region of one that is there, which has the same rows.
func (m *regionMap) put(old, r *Region) bool {
	i := m.index(old.Start)
	if i < 0 || m.regions[i] != old {
		return false
	}
	m.regions[i] = r
	return true
}

// evict drops regions until there are no more than n: first those that nobody needed since the last time, then every
// second one.
func (m *regionMap) evict(n int) {
	m.regions = slices.DeleteFunc(m.regions, func(r *Region) bool { return !r.used.Swap(false) })
	for len(m.regions) > n {
		i := 0
		m.regions = slices.DeleteFunc(m.regions, func(*Region) bool { i++; return i%2 == 0 })
	}
	m.heads = m.heads[:0]
	for _, r := range m.regions {
		m.heads = append(m.heads, head(r.Start))
	}
}
