package query

import "time"

// Costs says what reading rows costs in a store, so that the cheaper of two methods can be chosen: asking for each
// row by its key, or scanning the rows of a metric's hour and passing over those that are not wanted.
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

// method is how rows are read.
type method byte

const (
	byCost method = iota // whichever is cheaper
	byGet
	byScan
)

func (m method) String() string { return [...]string{"by cost", "get", "scan"}[m] }

// step is rows of a plan that are read by one method: rows[from:to], whose keys begin with the same salt and metric.
type step struct {
	from, to int
	method   method
	hours    int // how many there are among its rows
	unwanted int // so many rows that are not wanted a scan passes over
	cost     time.Duration
}

// choose takes the cheaper method, if none is forced.
func (s *step) choose(c Costs, forced method) {
	rows := s.to - s.from
	get := c.Call + time.Duration(rows)*c.Get
	scan := c.Call + time.Duration(s.hours)*c.Seek + time.Duration(rows-s.hours)*c.Next +
		time.Duration(s.unwanted)*c.Skip
	s.method, s.cost = byGet, get
	if forced == byScan || forced == byCost && scan < get {
		s.method, s.cost = byScan, scan
	}
}
