package query

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping/index"
)

// Touched is what reading data rows touches.
type Touched struct {
	Blocks  int // parts in which the answer is read
	Calls   int // calls of the store
	Rows    int // rows wanted
	Gets    int // those of them that are asked for by their keys
	Scanned int // rows that scans meet, wanted or not; a store that filters elsewhere does not tell of all
	Found   int // rows wanted that there are
	Cells   int
	Bytes   int // of row keys, qualifiers and values
	Samples int // in the time range
}

func (t *Touched) add(u Touched) {
	t.Blocks += u.Blocks
	t.Calls += u.Calls
	t.Rows += u.Rows
	t.Gets += u.Gets
	t.Scanned += u.Scanned
	t.Found += u.Found
	t.Cells += u.Cells
	t.Bytes += u.Bytes
	t.Samples += u.Samples
}

// Explanation says how a Select is answered.
type Explanation struct {
	AccessPath index.AccessPath // where the series are found
	Candidates int              // index entries that are compared
	Series     int              // label sets that match
	Hours      int              // hours of the range at which any may have samples

	// Estimate is what reading the rows is expected to touch, if each holds as many samples as estimated (Found and what
	// follows it are 0), and Cost how long the store works on it.
	Estimate Touched
	Cost     time.Duration
	Reads    []Read // the first calls of the store

	Analyzed  bool
	Actual    Touched
	IndexTook time.Duration // finding the series
	Took      time.Duration // all of it
	Warnings  []error
}

// Read is a call of the store by which data rows are read.
type Read struct {
	Scan        bool // false: the rows are got by their keys
	Rows        int  // wanted
	First, Last string
}

// String writes a Read for people:
//
//	scan for 20 rows from up{job="a"} 2026-11-22T09:00:00Z to up{job="b"} 2026-11-22T10:00:00Z
func (r Read) String() string {
	verb := "get"
	if r.Scan {
		verb = "scan for"
	}
	if r.Rows == 1 {
		return fmt.Sprintf("%s 1 row: %s", verb, r.First)
	}
	return fmt.Sprintf("%s %d rows from %s to %s", verb, r.Rows, r.First, r.Last)
}

const (
	maxReads       = 5       // that are told of
	explainSamples = 240     // of a row: one each 15 s
	explainRows    = 1 << 20 // rows after which the rest is taken to be like what came before
)

// Explain says how Select would answer, and with analyze carries it out and says what it has touched.
func (q *Querier) Explain(
	ctx context.Context, mint, maxt int64, matchers []*labels.Matcher, analyze bool,
) (Explanation, error) {
	begin := time.Now()
	found, err := q.find(ctx, mint, maxt, 0, matchers)
	if err != nil {
		return Explanation{}, err
	}
	s := newSet(ctx, q, found, mint, maxt)
	defer s.Close()
	e := Explanation{
		AccessPath: found.AccessPath, Candidates: found.Candidates, Series: len(s.groups), Hours: len(s.hours),
		Analyzed: analyze, IndexTook: time.Since(begin),
	}
	e.estimate(s)
	if !analyze {
		return e, nil
	}
	begin = time.Now()
	s.start()
	for s.Next() {
		for s.Points() != nil {
		}
	}
	e.Actual, e.Took, e.Warnings = s.touched, e.IndexTook+time.Since(begin), s.warnings
	return e, s.err
}

// estimate plans all blocks, and reads none.
func (e *Explanation) estimate(s *set) {
	total := 0
	for i := range s.groups {
		total += s.groups[i].rows(s.hours)
	}
	var p plan
	var tasks []task
	rows := firstRows
	for next, more := (extent{}), total > 0; more && e.Estimate.Rows < explainRows; next, more = s.after(p.extent) {
		p.listRows(s.q.Settings.Schema, s.groups, s.hours, s.extentOf(next, rows))
		rows = aimedPoints / explainSamples
		p.chooseSteps(s.q.Settings.Schema, s.q.Costs, s.q.forced, s.population)
		tasks = divide(tasks, &p, nil, s.q.Concurrency)
		for _, t := range tasks[:min(len(tasks), maxReads-len(e.Reads))] {
			uids, last := s.q.Index.UIDs, len(t.rows)-1
			e.Reads = append(e.Reads, Read{
				t.method == byScan, len(t.rows), uids.FormatRowKey(t.rows[0]), uids.FormatRowKey(t.rows[last]),
			})
		}
		t := Touched{Blocks: 1, Calls: len(tasks), Rows: len(p.rows)}
		for _, step := range p.steps {
			e.Cost += step.cost
			if step.method == byGet {
				t.Gets += step.to - step.from
			} else {
				t.Scanned += step.to - step.from + step.unwanted
			}
		}
		e.Estimate.add(t)
	}
	if done := e.Estimate.Rows; done > 0 && done < total {
		grow := func(n *int) { *n = int(float64(*n) * float64(total) / float64(done)) }
		grow(&e.Estimate.Blocks)
		grow(&e.Estimate.Calls)
		grow(&e.Estimate.Rows)
		grow(&e.Estimate.Gets)
		grow(&e.Estimate.Scanned)
		e.Cost = time.Duration(float64(e.Cost) * float64(total) / float64(done))
	}
}
