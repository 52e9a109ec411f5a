package memtable

import (
	"bytes"
	"math"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// newGroup is a full group of series that have a point at the offset 0 of their row, and can be staged.
func newGroup(base uint32) []*Series {
	g := &group{table: New(Config{})}
	all := make([]*Series, groupSize)
	for i := range all {
		all[i] = &Series{group: g, slot: uint8(i)}
		all[i].Lock()
		row, _ := all[i].rowOf(base, 0)
		row.indexed = true
		row.add(0, float64(i))
		g.table.buffered.Add(int64(cap(row.points)))
		all[i].Unlock()
	}
	return all
}

func TestGroup_StagesWhatIsJustTheNextOfItsRow(t *testing.T) {
	const base, start = 7200, 7200_000
	admission := request.Admission{Latest: start + 1000, RefuseInfinities: true}
	for _, c := range []struct {
		name   string
		change func(*Series)
		sample request.Sample
		staged bool
	}{
		{"next", nil, request.Sample{T: start + 1, V: 5}, true},
		{"a duplicate", nil, request.Sample{T: start}, false},
		{"the hour before", nil, request.Sample{T: start - 1}, false},
		{"the hour after", nil, request.Sample{T: start + mapping.HourMs}, false},
		{"refused for its time", nil, request.Sample{T: start + 1001}, false},
		{"refused for its value", nil, request.Sample{T: start + 1, V: math.Inf(-1)}, false},
		{"its points are being flushed", func(s *Series) { s.current.flushing = len(s.current.points) },
			request.Sample{T: start + 1}, false},
		{"its day is not indexed", func(s *Series) { s.current.indexed = false }, request.Sample{T: start + 1}, false},
		{"it has a later point", func(s *Series) { s.current.add(500, 1) }, request.Sample{T: start + 500}, false},
	} {
		s := newGroup(base)[3]
		if c.change != nil {
			s.Lock()
			c.change(s)
			s.Unlock()
		}
		s.group.mu.Lock()
		if got := s.group.stage(s.slot, []request.Sample{c.sample}, 1, &admission) == 1; got != c.staged {
			t.Errorf("%s: staged %v, want %v", c.name, got, c.staged)
		}
		s.group.mu.Unlock()
	}
}

// So many samples come that the group unstages of itself several times. The first series misses every other request.
func TestGroup_BringsSamplesToTheirSeriesWithTheTimeWhenTheyCame(t *testing.T) {
	const base, requests = 7200, 100
	all := newGroup(base)
	g := all[0].group
	var want [groupSize][]byte
	var arrived [groupSize]int64
	for i, s := range all {
		want[i] = bytes.Clone(s.current.points)
	}
	for n := range requests {
		now := int64(1000 + n)
		g.mu.Lock()
		for i, s := range all {
			if i == 0 && n%2 == 1 {
				continue
			}
			offset, v := uint32(n*15_000+i+1), float64(n)*1e9/float64(i+1)
			samples := []request.Sample{{T: base*1000 + int64(offset), V: v}, {T: base*1000 + int64(offset) + 7000, V: 1}}
			if taken := g.stage(s.slot, samples, now, &request.Admission{Latest: math.MaxInt64}); taken != len(samples) {
				t.Fatalf("request %d: %d samples of series %d are staged", n, taken, i)
			}
			want[i] = mapping.AppendPoint(mapping.AppendPoint(want[i], offset, v), offset+7000, 1)
			arrived[i] = now
		}
		g.mu.Unlock()
	}
	buffered := 0
	for i, s := range all {
		s.Lock()
		if !bytes.Equal(s.current.points, want[i]) || s.arrived != arrived[i] || !s.current.ascending {
			t.Errorf("series %d: points %x, the latest came at %d, want %x, %d", i, s.current.points, s.arrived, want[i],
				arrived[i])
		}
		if last := mapping.FindPoint(s.current.points, s.current.last); !bytes.HasSuffix(want[i], last) || last == nil {
			t.Errorf("series %d: the last offset is %d", i, s.current.last)
		}
		buffered += cap(s.current.points)
		s.Unlock()
	}
	if got := g.table.buffered.Load(); got != int64(buffered) {
		t.Errorf("%d bytes are buffered, counted are %d", buffered, got)
	}
}
