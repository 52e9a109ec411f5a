package ingest

import (
	"bytes"
	"math"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// newLot is a full lot of series that have a point at the offset 0 of their row, and can be staged.
func newLot(base uint32) []*series {
	l := &lot{table: newTable()}
	all := make([]*series, neighbours)
	for i := range all {
		all[i] = &series{lot: l, number: uint8(i)}
		all[i].lock()
		row, _ := all[i].openRow(base, 0)
		row.indexed = true
		row.add(0, float64(i))
		l.table.held.Add(int64(cap(row.points)))
		all[i].unlock()
	}
	return all
}

func TestLot_StagesWhatIsJustTheNextOfItsRow(t *testing.T) {
	const base, start = 7200, 7200_000
	terms := terms{now: 1, latest: start + 1000, limits: Limits{RefuseInfinities: true}}
	for _, c := range []struct {
		name   string
		change func(*series)
		sample request.Sample
		staged bool
	}{
		{"next", nil, request.Sample{T: start + 1, V: 5}, true},
		{"a repeat", nil, request.Sample{T: start}, false},
		{"the hour before", nil, request.Sample{T: start - 1}, false},
		{"the hour after", nil, request.Sample{T: start + mapping.HourMs}, false},
		{"refused for its time", nil, request.Sample{T: start + 1001}, false},
		{"refused for its value", nil, request.Sample{T: start + 1, V: math.Inf(-1)}, false},
		{"its points are being flushed", func(s *series) { s.current.flushing = len(s.current.points) },
			request.Sample{T: start + 1}, false},
		{"its day is not indexed", func(s *series) { s.current.indexed = false }, request.Sample{T: start + 1}, false},
		{"it has a later point", func(s *series) { s.current.add(500, 1) }, request.Sample{T: start + 500}, false},
	} {
		s := newLot(base)[3]
		if c.change != nil {
			s.lock()
			c.change(s)
			s.unlock()
		}
		s.lot.mu.Lock()
		if got := s.lot.stage(s.number, []request.Sample{c.sample}, &terms) == 1; got != c.staged {
			t.Errorf("%s: staged %v, want %v", c.name, got, c.staged)
		}
		s.lot.mu.Unlock()
	}
}

// So many samples come that the lot settles of itself several times. The first series misses every other request.
func TestLot_BringsSamplesToTheirSeriesWithTheTimeWhenTheyCame(t *testing.T) {
	const base, requests = 7200, 100
	all := newLot(base)
	l := all[0].lot
	var want [neighbours][]byte
	var arrived [neighbours]int64
	for i, s := range all {
		want[i] = bytes.Clone(s.current.points)
	}
	for n := range requests {
		terms := terms{now: int64(1000 + n), latest: math.MaxInt64}
		l.mu.Lock()
		for i, s := range all {
			if i == 0 && n%2 == 1 {
				continue
			}
			offset, v := uint32(n*15_000+i+1), float64(n)*1e9/float64(i+1)
			samples := []request.Sample{{T: base*1000 + int64(offset), V: v}, {T: base*1000 + int64(offset) + 7000, V: 1}}
			if taken := l.stage(s.number, samples, &terms); taken != len(samples) {
				t.Fatalf("request %d: %d samples of series %d are staged", n, taken, i)
			}
			want[i] = mapping.AppendPoint(mapping.AppendPoint(want[i], offset, v), offset+7000, 1)
			arrived[i] = terms.now
		}
		l.mu.Unlock()
	}
	held := 0
	for i, s := range all {
		s.lock()
		if !bytes.Equal(s.current.points, want[i]) || s.arrived != arrived[i] || !s.current.ascending {
			t.Errorf("series %d: points %x, the latest came at %d, want %x, %d", i, s.current.points, s.arrived, want[i],
				arrived[i])
		}
		if last := mapping.FindPoint(s.current.points, s.current.last); !bytes.HasSuffix(want[i], last) || last == nil {
			t.Errorf("series %d: the last offset is %d", i, s.current.last)
		}
		held += cap(s.current.points)
		s.unlock()
	}
	if got := l.table.held.Load(); got != int64(held) {
		t.Errorf("%d bytes are held, counted are %d", held, got)
	}
}
