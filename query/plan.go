package query

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/postings"
)

// plan is what is to be read of the data table for a block, and how. It is pure: nothing is read while it is made.
type plan struct {
	extent
	members []member // the TSUIDs of the extent, in the order of their row keys
	rows    [][]byte // the keys of the rows that there may be, ascending
	groups  []int    // the group of each row
	steps   []step   // how the rows are read

	active         []member // those of a day
	patterns, keys []byte   // memory for the keys of members and rows
}

// member is one TSUID of a block.
type member struct {
	group int
	tsuid []byte
	row   []byte // row key, with base time 0
	head  int    // numbers the members with one salt and metric
	days  postings.Days
}

// listRows makes the plan of an extent, without steps.
func (p *plan) listRows(s mapping.Schema, groups []group, hours []uint32, e extent) {
	p.extent = e
	p.members, p.patterns, p.keys = p.members[:0], p.patterns[:0], p.keys[:0]
	p.rows, p.groups, p.steps = p.rows[:0], p.groups[:0], p.steps[:0]
	for g := e.from; g < e.to; g++ {
		for _, t := range groups[g].series {
			at := len(p.patterns)
			p.patterns = s.AppendRowKey(p.patterns, t.TSUID, 0)
			p.members = append(p.members, member{g, t.TSUID, p.patterns[at:len(p.patterns):len(p.patterns)], 0, t.Days})
		}
	}
	// Keys order by salt and metric, then base time, then tags. With base time 0 members order by salt and metric, then
	// tags. So the hours go outermost within the members of one salt and metric.
	slices.SortFunc(p.members, func(x, y member) int { return bytes.Compare(x.row, y.row) })
	width := headWidth(s)
	for start, head := 0, 0; start < len(p.members); head++ {
		end := start
		for end < len(p.members) && bytes.Equal(p.members[end].row[:width], p.members[start].row[:width]) {
			p.members[end].head = head
			end++
		}
		p.addRows(s, p.members[start:end], hours[e.begin:e.end])
		start = end
	}
}

// addRows adds the rows of some members of one salt and metric, on the days on which each was active.
func (p *plan) addRows(s mapping.Schema, members []member, hours []uint32) {
	for at := 0; at < len(hours); {
		day := dayOf(hours[at])
		p.active = p.active[:0]
		for _, m := range members {
			if m.days.Has(mapping.Day(day)) {
				p.active = append(p.active, m)
			}
		}
		for ; at < len(hours) && dayOf(hours[at]) == day; at++ {
			p.addHour(s, hours[at])
		}
	}
}

// addHour adds the rows of the active members in an hour.
func (p *plan) addHour(s mapping.Schema, base uint32) {
	for _, m := range p.active {
		at := len(p.keys)
		p.keys = append(p.keys, m.row...)
		key := p.keys[at:len(p.keys):len(p.keys)]
		s.SetBaseTime(key, base)
		p.rows = append(p.rows, key)
		p.groups = append(p.groups, m.group)
	}
}

// chooseSteps decides how the rows are read. population is of how many series each metric has rows. If that is nil, it
// is not known, scans might pass over any number of rows, and rows are got by their keys.
func (p *plan) chooseSteps(s mapping.Schema, c Costs, forced method, population map[mapping.UID]int) {
	if population == nil && forced == byCost {
		forced = byGet
	}
	tags, head := s.TagsOffset(), headWidth(s)
	p.steps = p.steps[:0]
	for from := 0; from < len(p.rows); {
		to, hours := from+1, 1
		for ; to < len(p.rows) && bytes.Equal(p.rows[to][:head], p.rows[from][:head]); to++ {
			if !bytes.Equal(p.rows[to][head:tags], p.rows[to-1][head:tags]) {
				hours++
			}
		}
		metric, _ := s.ParseUID(mapping.Metric, p.rows[from][s.SaltWidth:head])
		series := population[metric]
		if s.SaltWidth > 0 {
			series = (series + s.SaltBuckets - 1) / s.SaltBuckets
		}
		step := step{from: from, to: to, hours: hours, unwanted: max(0, series*hours-(to-from))}
		step.choose(c, forced)
		p.steps = append(p.steps, step)
		from = to
	}
}

// headWidth is how many bytes of a row key the salt and the metric are; the base time follows.
func headWidth(s mapping.Schema) int { return s.TagsOffset() - 4 }

// divisible says whether a smaller plan could be made: it has more than one row, and more than one group, or hour.
func (p *plan) divisible() bool { return len(p.rows) > 1 && (p.to-p.from > 1 || p.end-p.begin > 1) }

const rowBytes = int64(unsafe.Sizeof([]byte{}) + unsafe.Sizeof(0))

// bytes is the memory of the plan.
func (p *plan) bytes() int64 {
	return int64(len(p.patterns)+len(p.keys)) + int64(len(p.rows))*rowBytes +
		int64(len(p.members))*int64(unsafe.Sizeof(member{}))
}
