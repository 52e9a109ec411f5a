package client_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// The data of the benchmarks: 100,000 rows of 43 bytes, 10 cells of 80 bytes each on the wire, in 8 regions.
const (
	benchRows    = 100_000
	benchPoints  = 10
	benchRegions = 8
	benchCells   = benchRows * benchPoints
)

// benchKey makes the key of row i: a salt byte for the region, and bytes that look like UIDs.
func benchKey(dst []byte, i int) []byte {
	dst = append(dst[:0], byte(i%benchRegions))
	dst = binary.BigEndian.AppendUint64(dst, uint64(i)*0x9E3779B97F4A7C15)
	for len(dst) < 43 {
		dst = append(dst, byte(i>>(len(dst)%3*8)))
	}
	return dst
}

func benchTable(b *testing.B, c *client.Client) string {
	var splits []string
	for r := 1; r < benchRegions; r++ {
		splits = append(splits, string([]byte{byte(r)}))
	}
	return table(b, c, splits...)
}

// measure reports what a function that handles n things at a call costs of CPU time and allocations.
func measure(b *testing.B, n int, unit string, run func()) {
	b.Helper()
	run() // warm
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, cpu := time.Now(), cpuTime()
	b.ResetTimer()
	for range b.N {
		run()
	}
	b.StopTimer()
	total := float64(n) * float64(b.N)
	used := cpuTime() - cpu
	runtime.ReadMemStats(&after)
	b.ReportMetric(total/time.Since(start).Seconds(), unit+"s/s")
	b.ReportMetric(used.Seconds()/total*1e6, "cpu-s/M"+unit)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/total, "allocs/"+unit)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchFill writes all cells, one of each row before the next one of any, as scrapes do.
func benchFill(b *testing.B, c *client.Client, name string, grouped bool) {
	const workers, perBatch = 4, 25_000
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var row []byte
			var qualifier [4]byte
			var value [8]byte
			const cells = benchCells / workers
			for from := w * cells; from < (w+1)*cells; from += perBatch {
				batch, err := c.NewBatch(b.Context(), name)
				if err != nil {
					b.Error(err)
					return
				}
				for i := from; i < from+perBatch; i++ {
					r, point := i%benchRows, i/benchRows
					if grouped {
						r, point = i/benchPoints, i%benchPoints
					}
					row = benchKey(row, r)
					binary.BigEndian.PutUint32(qualifier[:], uint32(point))
					binary.BigEndian.PutUint64(value[:], uint64(i))
					batch.Put(row, "f", qualifier[:], 1_700_000_000_000+int64(point), value[:])
				}
				if err := batch.Flush(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkPut(b *testing.B) {
	for _, grouped := range []bool{false, true} {
		b.Run(map[bool]string{false: "by-time", true: "by-row"}[grouped], func(b *testing.B) {
			c := dial(b, nil)
			name := benchTable(b, c)
			measure(b, benchCells, "cell", func() { benchFill(b, c, name, grouped) })
		})
	}
}

// benchScan scans the regions in parallel, and returns the number of cells.
func benchScan(b *testing.B, c *client.Client, s client.Scan) int64 {
	regions, err := c.Regions(b.Context(), s.Table)
	if err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	for _, r := range regions {
		part := s
		part.Start, part.Stop = r.Start, r.End
		wg.Go(func() {
			cells := 0
			for row, err := range c.Scan(b.Context(), part) {
				if err != nil {
					b.Error(err)
					return
				}
				cells += len(row.Cells)
			}
			n.Add(int64(cells))
		})
	}
	wg.Wait()
	return n.Load()
}

func BenchmarkRead(b *testing.B) {
	c := dial(b, nil)
	name := benchTable(b, c)
	benchFill(b, c, name, true)
	b.Run("scan", func(b *testing.B) {
		measure(b, benchCells, "cell", func() {
			if got := benchScan(b, c, client.Scan{Table: name}); got != benchCells {
				b.Fatalf("got %d cells, want %d", got, benchCells)
			}
		})
	})
	b.Run("scan-filtered", func(b *testing.B) {
		// A byte of the key with 1 of about 100 values.
		filter := wire.RowFilter{Op: wire.Equal, Comparator: wire.Regex(`(?s)^.{5}[\x10-\x12].{37}$`)}
		var kept int64
		measure(b, benchCells, "cell", func() {
			kept = benchScan(b, c, client.Scan{Table: name, Filter: filter})
		})
		b.ReportMetric(float64(kept)/benchCells*100, "%kept")
	})
	b.Run("multi-get", func(b *testing.B) {
		const rows = 10_000
		keys := make([][]byte, rows)
		for i := range keys {
			keys[i] = benchKey(nil, i*(benchRows/rows)+i%benchRegions)
		}
		slices.SortFunc(keys, bytes.Compare)
		measure(b, rows, "get", func() {
			n := 0
			for row, err := range c.Get(b.Context(), client.Get{Table: name, Rows: keys}) {
				if err != nil {
					b.Fatal(err)
				}
				n += len(row.Cells)
			}
			if n != rows*benchPoints {
				b.Fatalf("got %d cells, want %d", n, rows*benchPoints)
			}
		})
	})
}
