package hbasetest

import (
	_ "embed" // for the files of testdata
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The cells that clients are compared on: a million, of BenchSeries rows with BenchPoints each. Cell n is point
// n / BenchSeries of series n % BenchSeries: one of every row comes before the next one of any, as samples do. It has
//
//	row        region (1 byte) | hash (8) | class (1) | "fff..." (29) | series (4)      43 bytes
//	family     "t"                                                                       1
//	qualifier  point                                                                     4
//	timestamp  BenchTimestamp(point)
//	value      n                                                                         8
//
// which is 80 bytes on the wire. All integers are big-endian. The region is series % BenchRegions, which is
// where BenchSplits cuts; the hash scatters the series within it; the class is series / BenchRegions % 100, so that a
// filter on it keeps one row in a hundred.
const (
	BenchSeries  = 100_000
	BenchPoints  = 10
	BenchRegions = 8
	BenchCells   = BenchSeries * BenchPoints
	BenchFamily  = "t"
)

// BenchRow appends the row of a series to dst.
func BenchRow(dst []byte, series int) []byte {
	const fill = "fffffffffffffffffffffffffffff"
	dst = append(dst, byte(series%BenchRegions))
	dst = binary.BigEndian.AppendUint64(dst, uint64(series)*0x9E3779B97F4A7C15)
	dst = append(dst, byte(series/BenchRegions%100))
	dst = append(dst, fill...)
	return binary.BigEndian.AppendUint32(dst, uint32(series))
}

// BenchTimestamp is the timestamp of the cells of a point, in milliseconds.
func BenchTimestamp(point int) int64 { return 1_700_000_000_000 + int64(point)*15_000 }

// BenchSplits are the first rows of all regions but the first.
func BenchSplits() [][]byte {
	var splits [][]byte
	for i := 1; i < BenchRegions; i++ {
		splits = append(splits, []byte{byte(i)})
	}
	return splits
}

//go:embed testdata/Bench.java
var benchJava []byte

// JavaBench is HBase's own Java client at work on the cells above, as testdata/Bench.java has it: to be warmed up by a
// first use of each method. Its methods fail the test where the client fails.
type JavaBench struct {
	t      testing.TB
	client *javaClient
}

// Measured is what something has cost.
type Measured struct {
	Cells int           // handled
	Sum   uint64        // of their values
	Wall  time.Duration // from beginning to end
	CPU   time.Duration // of the whole process, with compiling and collecting garbage
	// Allocated is the bytes of memory taken from the heap, whether they were freed since or not.
	Allocated uint64
}

// JavaBench starts HBase's Java client with both compilers and a heap of 1 GiB. It ends with the test.
func (c *Cluster) JavaBench() *JavaBench {
	c.t.Helper()
	source := filepath.Join(c.sys.dir, "Bench.java")
	if err := os.WriteFile(source, benchJava, 0o644); err != nil {
		c.t.Fatal(err)
	}
	client := &javaClient{
		start: func() *exec.Cmd { return c.sys.java("-Xmx1g", "-XX:TieredStopAtLevel=4", source) },
		log:   filepath.Join(c.sys.dir, "bench.log"),
	}
	c.t.Cleanup(client.close)
	return &JavaBench{t: c.t, client: client}
}

// Put stores cells from to to (exclusive) by Table.put; each of the threads takes batch cells at a time.
func (j *JavaBench) Put(table string, from, to, threads, batch int) Measured {
	j.t.Helper()
	return j.ask("put %s %d %d %d %d", table, from, to, threads, batch)
}

// Scan reads all cells, by one scanner or by BenchRegions at once; with a regular expression, those of the rows that
// match.
func (j *JavaBench) Scan(table string, scanners int, regex string) Measured {
	j.t.Helper()
	if regex == "" {
		return j.ask("scan %s %d", table, scanners)
	}
	return j.ask("scan %s %d %s", table, scanners, hex.EncodeToString([]byte(regex)))
}

// Get reads all rows by Table.get, in so many rounds: round r has the series r, r + rounds, r + 2 * rounds and so on.
func (j *JavaBench) Get(table string, rounds int) Measured {
	j.t.Helper()
	return j.ask("get %s %d %d", table, BenchSeries/rounds, rounds)
}

// Check fails the test unless the table has all cells, each as it should be, and no others.
func (j *JavaBench) Check(table string) {
	j.t.Helper()
	if got := j.ask("check %s", table); got.Cells != BenchCells {
		j.t.Fatalf("table %s has %d cells, all of them right, want %d", table, got.Cells, BenchCells)
	}
}

func (j *JavaBench) ask(format string, args ...any) (m Measured) {
	j.t.Helper()
	question := fmt.Sprintf(format, args...)
	answer, err := j.client.ask(question)
	if err != nil {
		j.t.Fatalf("%s: %v", question, err)
	}
	if len(answer) != 1 {
		j.t.Fatalf("%s: the answer has %d lines, want 1", question, len(answer))
	}
	if _, err := fmt.Sscanf(answer[0], "%d %d %d %d %d", &m.Cells, &m.Sum, &m.Wall, &m.CPU, &m.Allocated); err != nil {
		j.t.Fatalf("%s: parse answer %q: %v", question, answer[0], err)
	}
	return m
}
