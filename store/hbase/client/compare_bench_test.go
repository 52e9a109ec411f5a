package client_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// compareGets is how many rows a multi-get asks for, and compareRounds how many of them read all rows once.
const (
	compareGets   = 10_000
	compareRounds = hbasetest.BenchSeries / compareGets
)

// compareRegex matches one row in a hundred.
const compareRegex = `(?s)^.{9}\x07.{33}$`

// BenchmarkCompare is this client beside HBase's own one, on the same server and the same million cells:
//
//	go test ./store/hbase/client -run '^$' -bench Compare -benchtime 1x
//
// The metrics to compare are the CPU time of the client's process per million cells or gets, and the memory it takes
// from the heap. The rates are what the server takes, and vary with what else the machine does: server-cores is how
// many processors it was busy on. Either client has put 200,000 cells before that is measured, and done all else once.
// What one has written the other one reads and checks, cell by cell.
func BenchmarkCompare(b *testing.B) {
	cluster := hbasetest.Standalone(b, hbasetest.Config{JVM: []string{"-Xmx2g", "-XX:TieredStopAtLevel=4"}})
	c, err := client.New(client.Config{ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	cmp := &comparison{c: c, java: cluster.JavaBench(), server: cluster.RegionServers()[0]}

	b.Run("put", cmp.puts)
	table := cmp.create(b)
	cmp.put(b, table, hbasetest.BenchCells, 4, 25_000)
	cmp.java.Check(table)
	if err := c.FlushTable(b.Context(), table); err != nil { // to where data is read from most often
		b.Fatal(err)
	}
	cmp.check(b, table)
	for _, scan := range []struct {
		name     string
		scanners int
		regex    string
	}{
		{"scan/scanners=1", 1, ""},
		{"scan/scanners=8", hbasetest.BenchRegions, ""},
		{"scan-1%/scanners=8", hbasetest.BenchRegions, compareRegex},
	} {
		want := allCells()
		if scan.regex != "" {
			want = classCells(7)
		}
		// Per cell that the server goes through, whatever it sends of them.
		t := trial{unit: "cell", n: hbasetest.BenchCells, want: want}
		t.name = scan.name + "/java"
		t.run = cmp.watched(func(*testing.B) hbasetest.Measured {
			return cmp.java.Scan(table, scan.scanners, scan.regex)
		})
		t.bench(b)
		t.name, t.ours = scan.name+"/ours", true
		t.run = cmp.watched(func(b *testing.B) hbasetest.Measured {
			return cmp.scan(b, table, scan.scanners, scan.regex)
		})
		t.bench(b)
	}
	t := trial{unit: "get", n: hbasetest.BenchSeries, want: allCells()}
	t.name = "multi-get/java"
	t.run = cmp.watched(func(*testing.B) hbasetest.Measured { return cmp.java.Get(table, compareRounds) })
	t.bench(b)
	rounds := compareKeys()
	t.name, t.ours = "multi-get/ours", true
	t.run = cmp.watched(func(b *testing.B) hbasetest.Measured { return cmp.get(b, table, rounds) })
	t.bench(b)
}

// comparison is the two clients, and the server of both.
type comparison struct {
	c      *client.Client
	java   *hbasetest.JavaBench
	server *hbasetest.Process
}

// cost is what something has cost its client, and the server.
type cost struct {
	hbasetest.Measured
	server time.Duration
}

// watched makes a function tell of the server's CPU time, too.
func (cmp *comparison) watched(run func(*testing.B) hbasetest.Measured) func(*testing.B) cost {
	return func(b *testing.B) cost {
		before := cmp.server.CPU()
		m := run(b)
		return cost{m, cmp.server.CPU() - before}
	}
}

// allCells is what there is to measure when all cells are handled; its times are left open.
func allCells() hbasetest.Measured {
	const n = hbasetest.BenchCells
	return hbasetest.Measured{Cells: n, Sum: n * (n - 1) / 2}
}

// classCells is the same for the cells of the rows of one class.
func classCells(class int) (m hbasetest.Measured) {
	for n := range hbasetest.BenchCells {
		if n%hbasetest.BenchSeries/hbasetest.BenchRegions%100 == class {
			m.Cells++
			m.Sum += uint64(n)
		}
	}
	return m
}

// trial is one thing that one client does.
type trial struct {
	name string
	unit string             // of what it handles: cell or get
	n    int                // how many of them
	want hbasetest.Measured // but for the times
	ours bool               // it is done by this process, whose allocations are counted
	warm bool               // it has been done before
	run  func(b *testing.B) cost
}

// bench reports what the trial costs. Unless it is warm it is done once before.
func (t trial) bench(b *testing.B) {
	b.Run(t.name, func(b *testing.B) {
		if !t.warm {
			t.run(b)
			t.warm = true
		}
		var total cost
		var allocations uint64
		for range b.N {
			var before, after runtime.MemStats
			runtime.GC() // what was left by others
			runtime.ReadMemStats(&before)
			got := t.run(b)
			runtime.ReadMemStats(&after)
			if got.Cells != t.want.Cells || got.Sum != t.want.Sum {
				b.Fatalf("got %d cells with sum %d, want %d with %d", got.Cells, got.Sum, t.want.Cells, t.want.Sum)
			}
			total.Wall += got.Wall
			total.CPU += got.CPU
			total.server += got.server
			total.Allocated += got.Allocated
			if t.ours {
				total.Allocated += after.TotalAlloc - before.TotalAlloc
				allocations += after.Mallocs - before.Mallocs
			}
		}
		handled := float64(t.n) * float64(b.N)
		b.ReportMetric(0, "ns/op") // has more in it
		b.ReportMetric(total.CPU.Seconds()/handled*1e6, "cpu-s/M"+t.unit)
		b.ReportMetric(handled/total.Wall.Seconds(), t.unit+"s/s")
		b.ReportMetric(float64(total.Allocated)/handled, "heap-B/"+t.unit)
		b.ReportMetric(total.server.Seconds()/handled*1e6, "server-cpu-s/M"+t.unit)
		b.ReportMetric(total.server.Seconds()/total.Wall.Seconds(), "server-cores")
		if t.ours {
			b.ReportMetric(float64(allocations)/handled, "allocs/"+t.unit)
		}
	})
}

// measured runs something of this process.
func measured(run func(count *tally)) (m hbasetest.Measured) {
	var count tally
	wall, cpu := time.Now(), processTime()
	run(&count)
	m.Wall, m.CPU = time.Since(wall), processTime()-cpu
	m.Cells, m.Sum = int(count.cells.Load()), count.sum.Load()
	return m
}

// tally counts cells and adds up their values, by many goroutines at once.
type tally struct {
	cells atomic.Int64
	sum   atomic.Uint64
}

func (t *tally) add(cells int, sum uint64) {
	t.cells.Add(int64(cells))
	t.sum.Add(sum)
}

// processTime is the CPU time of this process so far.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no reason to
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (cmp *comparison) create(b *testing.B) string {
	b.Helper()
	schema := wire.TableSchema{
		Name: wire.ParseTableName(fmt.Sprintf("bench%x", rand.Uint64())),
		Families: []wire.FamilySchema{{Name: hbasetest.BenchFamily, Attributes: []wire.Attribute{
			{Name: "VERSIONS", Value: "1"}, {Name: "DATA_BLOCK_ENCODING", Value: "FAST_DIFF"},
		}}},
	}
	if err := cmp.c.CreateTable(b.Context(), schema, hbasetest.BenchSplits()); err != nil {
		b.Fatal(err)
	}
	return schema.Name.String()
}

// drop removes a table, so that the server need not flush it while another one is measured.
func (cmp *comparison) drop(b *testing.B, table string) {
	b.Helper()
	if err := cmp.c.DisableTable(b.Context(), table); err != nil {
		b.Fatal(err)
	}
	if err := cmp.c.DeleteTable(b.Context(), table); err != nil {
		b.Fatal(err)
	}
}

// puts measures writing, each time into a new table, and has the other client check it.
func (cmp *comparison) puts(b *testing.B) {
	const warming = 200_000
	table := cmp.create(b)
	cmp.java.Put(table, 0, warming, 4, 2000)
	cmp.put(b, table, warming, 4, 2000)
	cmp.drop(b, table)

	t := trial{unit: "cell", n: hbasetest.BenchCells, want: allCells(), warm: true}
	t.name = "java/threads=4/batch=2000"
	t.run = func(b *testing.B) cost {
		table := cmp.create(b)
		defer cmp.drop(b, table)
		defer cmp.check(b, table)
		return cmp.watched(func(*testing.B) hbasetest.Measured {
			return cmp.java.Put(table, 0, hbasetest.BenchCells, 4, 2000)
		})(b)
	}
	t.bench(b)
	t.ours = true
	for _, form := range []struct{ workers, batch int }{{4, 2000}, {4, 25_000}, {1, 25_000}} {
		t.name = fmt.Sprintf("ours/goroutines=%d/batch=%d", form.workers, form.batch)
		t.run = func(b *testing.B) cost {
			table := cmp.create(b)
			defer cmp.drop(b, table)
			defer cmp.java.Check(table)
			return cmp.watched(func(b *testing.B) hbasetest.Measured {
				return cmp.put(b, table, hbasetest.BenchCells, form.workers, form.batch)
			})(b)
		}
		t.bench(b)
	}
}

// put stores the first n cells; each of the workers takes batch cells at a time.
func (cmp *comparison) put(b *testing.B, table string, n, workers, batch int) hbasetest.Measured {
	b.Helper()
	return measured(func(count *tally) {
		var wg sync.WaitGroup
		var next atomic.Int64
		for range workers {
			wg.Go(func() {
				for {
					to := int(next.Add(int64(batch)))
					from := to - batch
					if from >= n {
						return
					}
					if err := cmp.putBatch(b, table, from, min(to, n), count); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func (cmp *comparison) putBatch(b *testing.B, table string, from, to int, count *tally) error {
	batch, err := cmp.c.NewBatch(b.Context(), table)
	if err != nil {
		return err
	}
	var row []byte
	var qualifier [4]byte
	var value [8]byte
	var sum uint64
	for n := from; n < to; n++ {
		point := n / hbasetest.BenchSeries
		row = hbasetest.BenchRow(row[:0], n%hbasetest.BenchSeries)
		binary.BigEndian.PutUint32(qualifier[:], uint32(point))
		binary.BigEndian.PutUint64(value[:], uint64(n))
		batch.Put(row, hbasetest.BenchFamily, qualifier[:], hbasetest.BenchTimestamp(point), value[:])
		sum += uint64(n)
	}
	if err := batch.Flush(); err != nil {
		return err
	}
	count.add(to-from, sum)
	return nil
}

// scan reads the table, by one scanner or by one for each region.
func (cmp *comparison) scan(b *testing.B, table string, scanners int, regex string) hbasetest.Measured {
	b.Helper()
	return measured(func(count *tally) {
		scan := client.Scan{Table: table}
		if regex != "" {
			scan.Filter = wire.RowFilter{Op: wire.Equal, Comparator: wire.Regex(regex)}
		}
		splits := [][]byte{nil, nil}
		if scanners > 1 {
			splits = slices.Insert(splits, 1, hbasetest.BenchSplits()...)
		}
		var wg sync.WaitGroup
		for i := range len(splits) - 1 {
			part := scan
			part.Start, part.Stop = splits[i], splits[i+1]
			wg.Go(func() {
				cells, sum := 0, uint64(0)
				for row, err := range cmp.c.Scan(b.Context(), part) {
					if err != nil {
						b.Error(err)
						return
					}
					cells += len(row.Cells)
					sum += values(row)
				}
				count.add(cells, sum)
			})
		}
		wg.Wait()
	})
}

// values adds the values of a row's cells up.
func values(row client.Row) (sum uint64) {
	for i := range row.Cells {
		sum += binary.BigEndian.Uint64(row.Cells[i].Value)
	}
	return sum
}

// compareKeys are the rows of each round of multi-gets, sorted.
func compareKeys() [compareRounds][][]byte {
	var rounds [compareRounds][][]byte
	for series := range hbasetest.BenchSeries {
		round := &rounds[series%compareRounds]
		*round = append(*round, hbasetest.BenchRow(nil, series))
	}
	for _, keys := range rounds {
		slices.SortFunc(keys, bytes.Compare)
	}
	return rounds
}

// get reads all rows of the table by their keys.
func (cmp *comparison) get(b *testing.B, table string, rounds [compareRounds][][]byte) hbasetest.Measured {
	b.Helper()
	return measured(func(count *tally) {
		for _, keys := range rounds {
			for row, err := range cmp.c.Get(b.Context(), client.Get{Table: table, Rows: keys}) {
				if err != nil {
					b.Fatal(err)
				}
				count.add(len(row.Cells), values(row))
			}
		}
	})
}

// check compares all cells of a table with what they should be.
func (cmp *comparison) check(b *testing.B, table string) {
	b.Helper()
	seen := make([]bool, hbasetest.BenchCells)
	count := 0
	var want []byte
	for row, err := range cmp.c.Scan(b.Context(), client.Scan{Table: table}) {
		if err != nil {
			b.Fatal(err)
		}
		for _, cell := range row.Cells {
			n := len(seen)
			if len(cell.Value) == 8 {
				n = int(min(binary.BigEndian.Uint64(cell.Value), uint64(n)))
			}
			if n == len(seen) || seen[n] {
				b.Fatalf("cell of row %x has value %x, which is out of range or came before", cell.Row, cell.Value)
			}
			seen[n] = true
			count++
			point := n / hbasetest.BenchSeries
			want = hbasetest.BenchRow(want[:0], n%hbasetest.BenchSeries)
			if !bytes.Equal(cell.Row, want) || !bytes.Equal(row.Key, want) || string(cell.Family) != hbasetest.BenchFamily ||
				len(cell.Qualifier) != 4 || binary.BigEndian.Uint32(cell.Qualifier) != uint32(point) ||
				cell.Timestamp != hbasetest.BenchTimestamp(point) {
				b.Fatalf("cell %d is at row %x, %s:%x, timestamp %d, want row %x, %s:%08x, timestamp %d", n, cell.Row,
					cell.Family, cell.Qualifier, cell.Timestamp, want, hbasetest.BenchFamily, point,
					hbasetest.BenchTimestamp(point))
			}
		}
	}
	if count != len(seen) {
		b.Fatalf("table %s has %d cells, want %d", table, count, len(seen))
	}
}
