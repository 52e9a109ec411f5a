package memtable_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/request"
)

const base = 7200

// indexRows counts the days that are missing in the index.
type indexRows int

func (n *indexRows) IndexMissing(*memtable.Series, mapping.Day) { *n++ }

// put appends samples of a journal entry to a series, at offsets in milliseconds.
func put(table *memtable.Table, s *memtable.Series, entry uint64, offsets ...int64) {
	w := table.NewWriter(memtable.Arrival{
		Time: base*1000 + int64(entry), Entry: entry, Admission: request.Admission{Latest: math.MaxInt64},
	}, new(indexRows))
	for _, o := range offsets {
		w.Append(s.Slot(), s, []request.Sample{{T: base*1000 + o, V: 1}})
	}
	w.Close()
}

// offsets are those of a point list.
func offsets(points []byte) (out []int) {
	q, _ := mapping.AppendCell(nil, nil, points)
	for len(q) > 0 {
		offset, _, width, err := mapping.ParseQualifier(q)
		if err != nil {
			panic(err)
		}
		out = append(out, int(offset))
		q = q[width:]
	}
	return out
}

// buffered are the offsets that a query finds.
func buffered(table *memtable.Table, s *memtable.Series) (found []int) {
	table.Buffered([][]byte{[]byte(s.TSUID())}, 0, math.MaxUint32, func(_ int, _ uint32, points []byte) {
		found = append(found, offsets(points)...)
	})
	return found
}

// take flushes all shards up to the first that has rows, whose offsets it returns.
func take(table *memtable.Table, f *memtable.Flush) (taken []int) {
	for shard := range memtable.Shards {
		f.Begin(shard)
		rows, _ := f.Take(base)
		for _, r := range rows {
			taken = append(taken, offsets(r.Points)...)
		}
		if len(taken) > 0 {
			return taken
		}
		f.End()
	}
	return nil
}

// What a flush has taken stays readable, and the oldest, until it is committed; what comes meanwhile is for the next,
// and what is aborted, too.
func TestFlush_KeepsSamplesUntilTheyAreCommitted(t *testing.T) {
	table := memtable.New(memtable.Config{
		Schema: mapping.Schema{MetricWidth: 3, TagkWidth: 3, TagvWidth: 3}, MaxBytes: 1 << 20,
	})
	s := table.Retain(table.NewSeries(table.NextSlot(memtable.Slot{}), "tsuid", false))
	f := table.NewFlush()
	check := func(when string, entry uint64, want ...int) {
		t.Helper()
		if got := buffered(table, s); fmt.Sprint(got) != fmt.Sprint(want) || table.OldestEntry() != entry {
			t.Errorf("%s: %v are buffered, the oldest of entry %d, want %v, %d", when, got, table.OldestEntry(), want, entry)
		}
	}
	put(table, s, 3, 10, 20)
	put(table, s, 4, 30)
	check("appended", 3, 10, 20, 30)

	if got := take(table, f); fmt.Sprint(got) != "[10 20 30]" {
		t.Fatalf("took %v", got)
	}
	put(table, s, 5, 40)
	check("taken", 3, 10, 20, 30, 40)
	f.Abort()
	f.End()
	check("aborted", 3, 10, 20, 30, 40)

	if got := take(table, f); fmt.Sprint(got) != "[10 20 30 40]" {
		t.Fatalf("took %v", got)
	}
	put(table, s, 6, 50)
	f.Commit()
	check("committed", 3, 50)
	f.End()
	check("ended", 6, 50)

	if got := take(table, f); fmt.Sprint(got) != "[50]" {
		t.Fatalf("took %v", got)
	}
	f.Commit()
	f.End()
	check("all committed", math.MaxUint64)
	table.Release(s)
	if n := table.BufferedBytes(); n != 0 {
		t.Errorf("%d bytes are buffered in the end", n)
	}
}

// A series that was dropped between the look-up and the append comes back, with the samples.
func TestAppend_RevivesASeriesThatWasDropped(t *testing.T) {
	table := memtable.New(memtable.Config{
		Schema: mapping.Schema{MetricWidth: 3, TagkWidth: 3, TagvWidth: 3}, MaxBytes: 1 << 20,
	})
	s := table.Retain(table.NewSeries(table.NextSlot(memtable.Slot{}), "tsuid", false))
	table.Release(s)
	other := table.Retain(table.NewSeries(table.NextSlot(memtable.Slot{}), "tsuid", false))
	if other == s {
		t.Fatal("the series was not dropped")
	}
	put(table, s, 1, 10)
	put(table, other, 2, 20)
	if got := buffered(table, other); fmt.Sprint(got) != "[10 20]" {
		t.Errorf("%v are buffered, want both samples in one series", got)
	}
}

// Between Unlock and the next append a Writer stops nobody: a request may do what takes long there. Nor does it where
// there was nothing to append.
func TestWriter_HoldsNoLockAfterUnlock(t *testing.T) {
	table := memtable.New(memtable.Config{
		Schema: mapping.Schema{MetricWidth: 3, TagkWidth: 3, TagvWidth: 3}, MaxBytes: 1 << 20,
	})
	s := table.Retain(table.NewSeries(table.NextSlot(memtable.Slot{}), "tsuid", false))
	w := table.NewWriter(memtable.Arrival{Admission: request.Admission{Latest: math.MaxInt64}}, new(indexRows))
	defer w.Close()
	w.Append(s.Slot(), s, nil)
	buffered(table, s) // would hang
	w.Append(s.Slot(), s, []request.Sample{{T: base * 1000, V: 1}})
	w.Unlock()
	if got := buffered(table, s); fmt.Sprint(got) != "[0]" {
		t.Errorf("%v are buffered", got)
	}
}
