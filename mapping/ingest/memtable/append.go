package memtable

import (
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// Arrival is what the samples of one request have in common.
type Arrival struct {
	Time      int64  // when they arrived, in milliseconds since 1970
	Entry     uint64 // the journal entry that they are durable in
	Admission request.Admission
}

// Indexer is told of a day of a series, which is locked, whose index row is not known to be durable.
type Indexer interface {
	IndexMissing(s *Series, day mapping.Day)
}

// Writer appends the samples of one request. It is for one goroutine, and holds the lock of a group between calls:
// Close must follow, and nothing else that locks a series may come before.
type Writer struct {
	table   *Table
	arrival Arrival
	indexer Indexer
	group   *group // locked; nil: none

	grown, duplicates int
}

// NewWriter returns a Writer for a request.
func (t *Table) NewWriter(a Arrival, x Indexer) Writer {
	return Writer{table: t, arrival: a, indexer: x}
}

// Unlock gives back the lock that Append held on to, before the caller does something that takes long.
func (w *Writer) Unlock() {
	w.group.unlock()
	w.group = nil
}

// Close ends the request, and returns how many samples were duplicates of one in memory, and dropped.
func (w *Writer) Close() (duplicates int) {
	w.Unlock()
	w.table.buffered.Add(int64(w.grown))
	return w.duplicates
}

// Append appends samples of a series, whose slot the caller may know: the zero value says that it does not. It returns
// the series that has the samples, which is another than s if s had been dropped, and what was refused of them.
func (w *Writer) Append(slot Slot, s *Series, samples []request.Sample) (live *Series, refused request.Refusals) {
	if slot.group != nil && len(samples) > 0 {
		w.group = w.group.lockNext(slot.group)
		samples = samples[w.group.stage(slot.number, samples, w.arrival.Time, &w.arrival.Admission):]
	}
	if len(samples) == 0 {
		return s, refused
	}
	w.group.unlock()
	s = w.table.lockLive(s)
	w.group = s.group
	refused = w.append(s, samples)
	s.refreshSlot()
	return s, refused
}

// append appends samples to the rows of a series, which is locked.
func (w *Writer) append(s *Series, samples []request.Sample) (refused request.Refusals) {
	var told mapping.Day
	someTold := false
	for _, sample := range samples {
		if !w.arrival.Admission.Admits(sample) {
			refused.Count(sample, &w.arrival.Admission)
			continue
		}
		r := &s.current
		offset := sample.T - int64(r.base)*1000
		if uint64(offset) >= mapping.HourMs || !r.open {
			base := mapping.BaseTime(sample.T)
			var opened int
			r, opened = s.rowOf(base, w.table.config.StartBase)
			w.grown += opened
			offset = sample.T - int64(base)*1000
		}
		if !r.indexed {
			day := mapping.DayOf(sample.T)
			if r.indexed = s.Indexed(day); !r.indexed && (!someTold || told != day) {
				w.indexer.IndexMissing(s, day)
				told, someTold = day, true
			}
		}
		if !r.hasUnflushed() {
			w.grown += w.table.list(s, oldest{w.arrival.Entry, r.base})
		}
		grown, duplicate := r.add(uint32(offset), sample.V)
		if duplicate {
			w.duplicates++
		}
		w.grown += grown
	}
	s.arrived = max(s.arrived, w.arrival.Time)
	return refused
}

// AppendHistogram appends a native histogram at t, milliseconds since 1970, in the form in which cells hold it. It
// returns the series that has it.
func (w *Writer) AppendHistogram(s *Series, t int64, point []byte) (live *Series) {
	w.Unlock()
	s = w.table.lockLive(s)
	defer s.Unlock()
	r, opened := s.rowOf(mapping.BaseTime(t), w.table.config.StartBase)
	if !r.indexed {
		w.indexer.IndexMissing(s, mapping.DayOf(t))
	}
	if !r.hasUnflushed() {
		w.grown += w.table.list(s, oldest{w.arrival.Entry, r.base})
	}
	r.mixed = true
	grown, duplicate := r.addPoint(uint32(t%mapping.HourMs), point)
	s.arrived = max(s.arrived, w.arrival.Time)
	w.grown += opened + grown
	if duplicate {
		w.duplicates++
	}
	return s
}
