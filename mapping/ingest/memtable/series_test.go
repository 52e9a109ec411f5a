package memtable

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

func TestCellTime_OfTwoSamplesAtOneInstantTheLaterHasTheLargerCellTimestamp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Series
		given := map[int64]int64{} // the latest cell timestamp of each instant
		var largest int64
		now := rapid.Int64Range(1, 1<<40).Draw(t, "clock")
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			now += rapid.SampledFrom([]int64{0, 0, 0, 1, 1000, -1, -1000}).Draw(t, "the clock moves by")
			at := rapid.Int64Range(0, 5).Draw(t, "t")
			got := s.CellTime(at, now)
			if before, ok := given[at]; ok && got <= before {
				t.Fatalf("a sample at %d got %d, and one before it %d", at, got, before)
			}
			if got < now || got < largest {
				t.Fatalf("got %d at %d, after %d: behind the clock, or running backwards", got, now, largest)
			}
			given[at], largest = got, got
		}
	})
}

func TestCellTime_IsTheClockWhileSamplesFollowEachOther(t *testing.T) {
	var s Series
	for _, c := range []struct{ t, now, want int64 }{
		{1000, 10, 10}, {2000, 10, 10}, {3000, 10, 10}, // a batch
		{2500, 10, 11}, {2600, 10, 11}, // one out of order begins another
		{3000, 20, 20}, {3000, 20, 21}, {4000, 15, 21},
	} {
		if got := s.CellTime(c.t, c.now); got != c.want {
			t.Errorf("CellTime(%d, %d) = %d, want %d", c.t, c.now, got, c.want)
		}
	}
}

func TestSetIndexed_RemembersTheLatestDaysAndNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Series
		noted := map[mapping.Day]bool{}
		var latest mapping.Day
		days := rapid.OneOf(
			rapid.Uint16Range(1000, 1200),
			rapid.SampledFrom([]uint16{0, 1, uint16(mapping.DayOf(mapping.MaxTime))}),
		)
		for range rapid.IntRange(1, 30).Draw(t, "days") {
			day := mapping.Day(days.Draw(t, "day"))
			s.SetIndexed(day)
			noted[day], latest = true, max(latest, day)
			for d := range noted {
				if want := latest-d < 64; want && !s.Indexed(d) {
					t.Fatalf("day %d is forgotten, and the latest is %d", d, latest)
				}
			}
			for range 5 {
				if d := mapping.Day(days.Draw(t, "other")); s.Indexed(d) && !noted[d] {
					t.Fatalf("day %d is said to be indexed, and never was", d)
				}
			}
			if s.days == 0 {
				t.Fatal("no day is known, after one was noted")
			}
		}
	})
}

// The first of the two has what every sample touches; memory comes in such pieces only if the size is a multiple of
// one.
func TestSeries_TakesTwoCacheLines(t *testing.T) {
	var s Series
	if size, first := unsafe.Sizeof(s), unsafe.Offsetof(s.arrived); size != 128 || first != 64 {
		t.Errorf("it takes %d bytes, and the first part of it %d, want 128 and 64", size, first)
	}
}
