package query

import (
	"bytes"
	"time"

	"github.com/promtsd/promtsd/mapping"
)

// Costs says what reading rows costs in a store, so that the cheaper of two ways can be taken: asking for each row by
// its key, or scanning the rows of a metric's hour and passing over those that are not wanted.
type Costs struct {
	Call time.Duration // a call of the store
	Get  time.Duration // a row that is asked for by its key
	Seek time.Duration // the first row of a range
	Next time.Duration // a further row of it
	Skip time.Duration // a further row of it that is not wanted
}

// EmbeddedCosts are those of the embedded store: time of a processor with the blocks in memory, as BenchmarkCosts
// measures it on rows of 240 samples, and twice as much for a row passed over, whose block may have to be read first.
func EmbeddedCosts() Costs {
	return Costs{
		Call: 6 * time.Microsecond, Get: 6 * time.Microsecond, Seek: 6500 * time.Nanosecond, Next: 4 * time.Microsecond,
		Skip: 300 * time.Nanosecond,
	}
}

// HBaseCosts are those of an HBase: time of its processors and ours, on a standalone HBase 2.6 with its files in the
// block cache, for rows of 240 samples. A row that is passed over costs no less than one that is sent, because what
// passes over it is a regular expression: a scan is worth it from about an eighth of a metric's series on.
//
//	go test ./query -run '^$' -bench HBaseCosts -benchtime 3s
func HBaseCosts() Costs {
	return Costs{
		Call: 450 * time.Microsecond, Get: 26 * time.Microsecond, Seek: 34 * time.Microsecond, Next: 3900 * time.Nanosecond,
		Skip: 3400 * time.Nanosecond,
	}
}

// plan is how rows are read.
type plan byte

const (
	byCost plan = iota // whichever is cheaper
	byGet
	byScan
)

func (p plan) String() string { return [...]string{"by cost", "get", "scan"}[p] }

// step is rows that are read in one way: wanted[from:to], whose keys begin with the same salt and metric.
type step struct {
	from, to int
	plan     plan
	hours    int // how many there are among its rows
	beside   int // of so many rows that are not wanted a scan passes over
	cost     time.Duration
}

// steps decides how the wanted rows are read. population is of how many series each metric has rows; nil if that is not
// known, and scans might pass over any number.
func (q *Querier) steps(dst []step, wanted [][]byte, population map[mapping.UID]int) []step {
	schema := q.Settings.Schema
	tags := schema.TagsOffset()
	head := tags - 4
	for from := 0; from < len(wanted); {
		to, hours := from+1, 1
		for ; to < len(wanted) && bytes.Equal(wanted[to][:head], wanted[from][:head]); to++ {
			if !bytes.Equal(wanted[to][head:tags], wanted[to-1][head:tags]) {
				hours++
			}
		}
		s := step{from: from, to: to, hours: hours}
		metric, _ := schema.ParseUID(mapping.Metric, wanted[from][schema.SaltWidth:head])
		series := population[metric]
		if schema.SaltWidth > 0 {
			series = (series + schema.SaltBuckets - 1) / schema.SaltBuckets
		}
		forced := q.forced
		if population == nil && forced == byCost {
			forced = byGet
		}
		s.choose(q.Costs, forced, series)
		dst = append(dst, s)
		from = to
	}
	return dst
}

// choose takes the cheaper plan, if none is forced. series is of how many series there are rows.
func (s *step) choose(c Costs, forced plan, series int) {
	rows := s.to - s.from
	s.beside = max(0, series*s.hours-rows)
	get := c.Call + time.Duration(rows)*c.Get
	scan := c.Call + time.Duration(s.hours)*c.Seek + time.Duration(rows-s.hours)*c.Next + time.Duration(s.beside)*c.Skip
	s.plan, s.cost = byGet, get
	if forced == byScan || forced == byCost && scan < get {
		s.plan, s.cost = byScan, scan
	}
}
