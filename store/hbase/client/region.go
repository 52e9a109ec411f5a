package client

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Region is one region of a table, as it was when the table was located. It is never changed.
type Region struct {
	Table string
	Name  []byte // full name
	Start []byte // inclusive; empty: from the table's start
	End   []byte // exclusive; empty: to the table's end
	// Server serves it; its Host is empty when none does at the moment, as while the region moves.
	Server wire.ServerName

	// redirected says that a server told that the region is at Server, not hbase:meta.
	redirected bool

	info  wire.RegionInfo
	addr  string // of Server, host:port
	slots limiter
}

// Encoded is the short name that HBase's logs and pages use.
func (r *Region) Encoded() string { return wire.EncodedName(r.Name) }

// holds reports whether row belongs into the region.
func (r *Region) holds(row []byte) bool {
	return bytes.Compare(row, r.Start) >= 0 && !r.endsBefore(row)
}

// endsBefore reports whether row lies behind the region.
func (r *Region) endsBefore(row []byte) bool { return len(r.End) > 0 && bytes.Compare(row, r.End) >= 0 }

// at is the region on another server.
func (r *Region) at(server wire.ServerName) *Region {
	moved := *r
	moved.Server, moved.addr, moved.redirected = server, server.Addr(), true
	return &moved
}

// layout is the regions of a table, in order, as they were found at one time. It is never changed: who finds it wrong
// asks the locator for a newer one.
type layout struct {
	table   string
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

// newLayout sorts regions and makes them share the limiters of those of the same name in old, which may be nil. moved
// is the number of regions that are new or at another server than there.
func newLayout(table string, regions []*Region, old *layout, slots int) (l *layout, moved int) {
	// By start key and id, not by the bytes of the names, in which a comma within a key would sort wrongly.
	slices.SortFunc(regions, func(a, b *Region) int {
		if c := bytes.Compare(a.Start, b.Start); c != 0 {
			return c
		}
		if a.info.ID < b.info.ID {
			return -1
		}
		return 1
	})
	known := make(map[string]*Region)
	if old != nil {
		for _, r := range old.regions {
			known[string(r.Name)] = r
		}
	}
	for _, r := range regions {
		before := known[string(r.Name)]
		switch {
		case before == nil:
			r.slots = newLimiter(slots)
			moved++
		default:
			r.slots = before.slots
			if before.Server != r.Server {
				moved++
			}
		}
	}
	l = &layout{table: table, regions: regions}
	for _, r := range regions {
		l.heads = append(l.heads, head(r.Start))
	}
	return l, moved
}

// find returns the region that row belongs into, nil where there is a hole, as for a moment during a split or merge. It
// does not allocate.
func (l *layout) find(row []byte) *Region {
	if i := l.index(row); i >= 0 && l.regions[i].holds(row) {
		return l.regions[i]
	}
	return nil
}

// index is that of the last region that does not start behind row, -1 if all do.
func (l *layout) index(row []byte) int {
	wanted := head(row)
	low, high := 0, len(l.heads)
	for low < high {
		mid := int(uint(low+high) / 2)
		if h := l.heads[mid]; h < wanted || h == wanted && bytes.Compare(l.regions[mid].Start, row) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// before returns the region in which the rows below row end, nil where there is a hole. An empty row stands for the
// table's end.
func (l *layout) before(row []byte) *Region {
	for i := len(l.regions) - 1; i >= 0; i-- {
		r := l.regions[i]
		if len(row) == 0 {
			if len(r.End) == 0 {
				return r
			}
			return nil
		}
		if bytes.Compare(r.Start, row) >= 0 {
			continue
		}
		if len(r.End) == 0 || bytes.Compare(row, r.End) <= 0 {
			return r
		}
		return nil
	}
	return nil
}

// moved is the layout with one region on another server; l itself when it has no such region.
func (l *layout) moved(name []byte, server wire.ServerName) *layout {
	i := slices.IndexFunc(l.regions, func(r *Region) bool { return bytes.Equal(r.Name, name) })
	if i < 0 {
		return l
	}
	regions := slices.Clone(l.regions)
	regions[i] = regions[i].at(server)
	return &layout{table: l.table, regions: regions, heads: l.heads}
}
