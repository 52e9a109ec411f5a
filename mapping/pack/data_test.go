package pack_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/promtsd/promtsd/mapping"
)

// The data to measure with: series of one hour, 15 s apart, that are not too kind to compression. shapes says how many
// of 24 series are of which kind.
var shapes = []struct {
	name   string
	parts  int
	values func(r *rand.Rand) func() float64 // of a new series, one after the other
}{
	{"counter at random", 8, func(r *rand.Rand) func() float64 {
		v := math.Floor(math.Exp(r.Float64() * 21)) // up to 1.3e9
		return func() float64 { v += float64(r.IntN(1001)); return v }
	}},
	{"counter, steady", 2, func(r *rand.Rand) func() float64 {
		v, step := math.Floor(math.Exp(r.Float64()*21)), float64(r.IntN(500))
		return func() float64 { v += step; return v }
	}},
	{"counter, rare", 2, func(r *rand.Rand) func() float64 {
		v := math.Floor(math.Exp(r.Float64() * 14))
		return func() float64 {
			if r.IntN(30) == 0 {
				v += float64(1 + r.IntN(3))
			}
			return v
		}
	}},
	{"gauge of pages", 3, func(r *rand.Rand) func() float64 {
		pages, width := math.Floor(math.Exp(8+r.Float64()*7)), 1+r.Float64()*100
		return func() float64 { pages += math.Round(r.NormFloat64() * width); return 4096 * math.Abs(pages) }
	}},
	{"gauge, small", 3, func(r *rand.Rand) func() float64 {
		v, width := float64(r.IntN(500)), 1+r.IntN(4)
		return func() float64 { v = math.Abs(v + float64(r.IntN(2*width+1)-width)); return v }
	}},
	{"decimals", 3, func(r *rand.Rand) func() float64 {
		ten := [...]float64{100, 1000}[r.IntN(2)]
		v, width := math.Exp(r.Float64()*7), 0.02+r.Float64()
		return func() float64 { v += r.NormFloat64() * width; return math.Round(v*ten) / ten }
	}},
	{"sum of seconds", 2, func(r *rand.Rand) func() float64 {
		v, rate, each := math.Exp(r.Float64()*12), 1+r.IntN(20), 0.01*math.Exp(r.Float64()*4)
		return func() float64 {
			for range 1 + r.IntN(rate) {
				v += each * r.ExpFloat64()
			}
			return v
		}
	}},
	{"average", 1, func(r *rand.Rand) func() float64 {
		mean := math.Exp(r.Float64()*10 - 5)
		return func() float64 { return mean * (1 + 0.1*r.NormFloat64()) }
	}},
}

const (
	parts    = 24
	targets  = 100
	scrapeMs = 15_000
)

func shapeNames() []string {
	var names []string
	for _, s := range shapes {
		names = append(names, s.name)
	}
	return names
}

// series is one series over one hour.
type series struct {
	shape  string
	key    []byte // what a store has before the bytes of its cells
	times  []uint32
	values []float64
}

// makeSeries makes series whose neighbours are of one metric and of different targets. Targets have phases of their
// own, and every tenth of them a jitter of up to 3 ms.
func makeSeries(count int) []series {
	r := rand.New(rand.NewPCG(1, 2))
	phases := make([]int, targets)
	for i := range phases {
		phases[i] = 3 + r.IntN(scrapeMs-6)
	}
	var byPart []int
	for i, s := range shapes {
		byPart = append(byPart, slices.Repeat([]int{i}, s.parts)...)
	}
	all := make([]series, count)
	for i := range all {
		metric, target := i/targets, i%targets
		shape := shapes[byPart[metric%parts]]
		s := series{shape: shape.name, key: seriesKey(metric, target)}
		next := shape.values(r)
		for at := phases[target]; at < mapping.HourMs; at += scrapeMs {
			jitter := 0
			if target%10 == 0 {
				jitter = r.IntN(7) - 3
			}
			s.times = append(s.times, uint32(at+jitter))
			s.values = append(s.values, next())
		}
		all[i] = s
	}
	return all
}

// seriesKey is a row key of a salt and 8 tags, of which two tell the targets of a metric apart.
func seriesKey(metric, target int) []byte {
	key := []byte{byte(metric + target), 0, 0, byte(metric), 0x65, 0x53, 0xf1, 0x00}
	for tag := range 8 {
		value := metric / 8
		if tag == 2 || tag == 6 {
			value = (tag + 1) * target
		}
		key = append(key, 0, 0, byte(tag+1), 0, byte(value>>8), byte(value))
	}
	return key
}

// cell is a cell of several points.
type cell struct {
	qualifier, value []byte
	points           int
}

// cell is the cell of the first points of s, as promtsd writes it.
func (s series) cell(points int) cell { return makeCell(s.times[:points], s.values[:points]) }

func makeCell(times []uint32, values []float64) cell {
	c := cell{points: len(times)}
	for i, v := range values {
		var flags byte
		c.value, flags = mapping.AppendValue(c.value, v)
		c.qualifier = mapping.AppendQualifier(c.qualifier, times[i], flags)
	}
	c.value = append(c.value, 0)
	return c
}
