package storetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/promtsd/promtsd/store"
)

// The shape of the data of Benchmark: a fleet of series that are sampled together, an hour a row.
const (
	benchSeries  = 2000 // rows of an hour, cells of a batch
	benchSamples = 60   // cells of a row in the tables that reads find
	benchHours   = 4
	benchBase    = 1500000000 / 3600 * 3600
)

// Benchmark measures a store with rows as promtsd writes them: 43-byte keys (metric, hour, six tags), 4-byte
// qualifiers, 8-byte values.
//
//	apply             2,000 cells for 2,000 rows in a batch, one goroutine
//	apply-parallel    the same, eight goroutines per CPU
//	scan              a table of 4 hours, 2,000 rows an hour, 60 cells a row
//	scan-filter       the same with a filter that keeps one row in a hundred
//	get               100 rows of that table
//	get-missing       100 rows that are not there
//	check-and-put     2,000 checks that give absent cells a value, over 400,000 cells in rows of their own
func Benchmark(b *testing.B, open func(t testing.TB) store.Store) {
	b.Run("apply", func(b *testing.B) {
		s := openBench(b, open)
		var batch store.Batch
		for n := 0; b.Loop(); n++ {
			batch.Reset()
			fillSamples(&batch, n)
			apply(b, s, &batch)
		}
		perSecond(b, benchSeries, "cells/s")
	})
	b.Run("apply-parallel", func(b *testing.B) {
		s := openBench(b, open)
		var n atomic.Int64
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			var batch store.Batch
			for pb.Next() {
				batch.Reset()
				fillSamples(&batch, int(n.Add(1)))
				apply(b, s, &batch)
			}
		})
		perSecond(b, benchSeries, "cells/s")
	})
	b.Run("check-and-put", func(b *testing.B) { benchChecks(b, openBench(b, open)) })
	b.Run("read", func(b *testing.B) {
		s := openBench(b, open)
		var batch store.Batch
		for hour := range benchHours {
			for n := range benchSamples {
				batch.Reset()
				fillSamples(&batch, hour*240+n)
				apply(b, s, &batch)
			}
		}
		benchReads(b, s)
	})
}

// benchChecks is how names get their UIDs: short rows at random places, none of which is there.
func benchChecks(b *testing.B, s store.Store) {
	const perCall, there = 2000, 400_000
	name := func(n int) []byte { return fmt.Appendf(nil, "%08x-name-%d", uint32(n)*2654435761, n) }
	var batch store.Batch
	for n := range there {
		batch.Put("tsdb", name(n), "t", []byte("metrics"), 0, []byte{1, 2, 3})
		if batch.Len() == 10_000 {
			apply(b, s, &batch)
			batch.Reset()
		}
	}
	checks := make([]store.Check, perCall)
	for n := there; b.Loop(); n += perCall {
		for i := range checks {
			checks[i] = store.Check{
				Coord: store.Coord{Table: "tsdb", Row: name(n + i), Family: "t", Qualifier: []byte("metrics")},
				Value: []byte{1, 2, 3},
			}
		}
		put, err := s.CheckAndPut(b.Context(), checks)
		if err != nil || slices.Contains(put, false) {
			b.Fatalf("CheckAndPut: %v", err)
		}
	}
	perSecond(b, perCall, "checks/s")
}

func benchReads(b *testing.B, s store.Store) {
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			readAll(b, s, store.Scan{Table: "tsdb"}, benchHours*benchSeries*benchSamples)
		}
		perSecond(b, benchHours*benchSeries*benchSamples, "cells/s")
	})
	b.Run("scan-filter", func(b *testing.B) {
		scan := store.Scan{Table: "tsdb", Filter: store.RowFilter{
			Match:  func(row []byte) bool { return row[12] == 7 },
			Regexp: `.{12}\x07.*`,
		}}
		for b.Loop() {
			readAll(b, s, scan, benchHours*benchSeries/100*benchSamples)
		}
		perSecond(b, benchHours*benchSeries, "rows/s")
	})
	for _, missing := range []bool{false, true} {
		name := "get"
		if missing {
			name = "get-missing"
		}
		b.Run(name, func(b *testing.B) {
			g := store.Get{Table: "tsdb"}
			for i := range 100 {
				row := sampleRow(nil, i*benchSeries/100, 240)
				if missing {
					row[len(row)-1] = 0xfe
				}
				g.Rows = append(g.Rows, row)
			}
			slices.SortFunc(g.Rows, slices.Compare)
			for b.Loop() {
				n, err := drain(s.Get(b.Context(), g))
				if err != nil || missing != (n == 0) {
					b.Fatalf("Get: %d rows, %v", n, err)
				}
			}
			perSecond(b, len(g.Rows), "rows/s")
		})
	}
}

func openBench(b *testing.B, open func(t testing.TB) store.Store) store.Store {
	b.ReportAllocs()
	s := open(b)
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	if err := s.CreateTable(b.Context(), store.Table{Name: "tsdb", Families: []string{"t"}}); err != nil {
		b.Fatal(err)
	}
	return s
}

func apply(b *testing.B, s store.Store, batch *store.Batch) {
	if err := s.Apply(b.Context(), batch); err != nil {
		b.Error(fmt.Errorf("apply: %w", err))
	}
}

func readAll(b *testing.B, s store.Store, scan store.Scan, want int) {
	cells := 0
	for row, err := range s.Scan(b.Context(), scan) {
		if err != nil {
			b.Fatal(err)
		}
		cells += len(row.Cells)
	}
	if cells != want {
		b.Fatalf("scan found %d cells, want %d", cells, want)
	}
}

func perSecond(b *testing.B, perOp int, unit string) {
	b.ReportMetric(float64(perOp)*float64(b.N)/b.Elapsed().Seconds(), unit)
}

// sampleRow appends the row key of the hour of a series' n-th sample, one each 15 s.
func sampleRow(dst []byte, series, n int) []byte {
	dst = append(dst, 0, 0, 1)
	dst = binary.BigEndian.AppendUint32(dst, uint32(benchBase+n/240*3600))
	for tag := range 6 {
		dst = append(dst, 0, 0, byte(tag+1), 0, byte(series/100*(tag%2)), byte(series%100+tag/2))
	}
	return dst
}

// fillSamples adds the n-th sample of each series.
func fillSamples(batch *store.Batch, n int) {
	var row, qualifier, value []byte
	for series := range benchSeries {
		row = sampleRow(row[:0], series, n)
		qualifier = binary.BigEndian.AppendUint32(qualifier[:0], 0xf0000000|uint32(n%240*15000)<<6|0xf)
		value = binary.BigEndian.AppendUint64(value[:0], math.Float64bits(float64(series)*1.1+float64(n)))
		batch.Put("tsdb", row, "t", qualifier, 0, value)
	}
}
