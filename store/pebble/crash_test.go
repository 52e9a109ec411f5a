package pebble_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

// The crash tests run writers, each of which writes the numbers 1, 2, ... into its row, all cells of a number in one
// batch, and keeps a counter. After a crash, each row must be whole and hold at least the last number acknowledged.
const (
	crashWriters = 4
	crashCells   = 20
)

func crashRow(writer int) []byte { return []byte("writer" + strconv.Itoa(writer)) }

// writeNumber writes one number, padded so that small memtables fill up.
func writeNumber(ctx context.Context, s store.Store, writer, number int) error {
	var b store.Batch
	for c := range crashCells {
		b.Put("data", crashRow(writer), "f", []byte{byte(c)}, 0, []byte(fmt.Sprintf("%d %0100d", number, c)))
	}
	if err := s.Apply(ctx, &b); err != nil {
		return err
	}
	_, err := s.Increment(ctx,
		store.Coord{Table: "data", Row: []byte("counters"), Family: "f", Qualifier: crashRow(writer)}, 1)
	return err
}

// checkNumbers checks what a store holds against the last acknowledged numbers.
func checkNumbers(t *testing.T, s store.Store, acknowledged []int) {
	t.Helper()
	for writer, want := range acknowledged {
		rows, err := storetest.Collect(s.Get(t.Context(), store.Get{Table: "data", Rows: [][]byte{crashRow(writer)}}))
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			if want > 0 {
				t.Errorf("writer %d: nothing is left of %d numbers", writer, want)
			}
			continue
		}
		first, _, _ := strings.Cut(string(rows[0].Cells[0].Value), " ")
		if n, err := strconv.Atoi(first); err != nil || n < want || n > want+1 || len(rows[0].Cells) != crashCells {
			t.Errorf("writer %d: %d cells of number %s, want %d cells of %d or the next", writer, len(rows[0].Cells), first,
				crashCells, want)
		}
		for _, c := range rows[0].Cells {
			if n, _, _ := strings.Cut(string(c.Value), " "); n != first {
				t.Errorf("writer %d: half a batch, numbers %s and %s", writer, first, n)
				break
			}
		}
		count, err := s.Increment(t.Context(),
			store.Coord{Table: "data", Row: []byte("counters"), Family: "f", Qualifier: crashRow(writer)}, 0)
		if err != nil || count < int64(want) {
			t.Errorf("writer %d: counter %d, %v, want at least %d", writer, count, err, want)
		}
	}
}

func createData(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.CreateTable(t.Context(), store.Table{Name: "data", Families: []string{"f"}}); err != nil {
		t.Fatal(err)
	}
}

func TestCrash_LosesNothingAcknowledged(t *testing.T) {
	for _, memTable := range []uint64{0, 16 << 10} { // with and without flushes
		for seed := range uint64(8) {
			fs := vfs.NewCrashableMem()
			cfg := pebble.Config{Dir: "db", FS: fs, MemTableBytes: memTable}
			s := open(t, cfg)
			createData(t, s)
			var mu sync.Mutex
			acknowledged := make([]int, crashWriters)
			var clone *vfs.MemFS
			var atCrash []int
			var wg sync.WaitGroup
			for writer := range crashWriters {
				wg.Go(func() {
					for number := 1; number <= 40; number++ {
						if err := writeNumber(t.Context(), s, writer, number); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						acknowledged[writer] = number
						// Each writer but one stands still at the lock or is in mid-write when the disk is copied.
						if writer == 0 && number == 10+int(seed)*3 {
							atCrash = append([]int(nil), acknowledged...)
							clone = fs.CrashClone(vfs.CrashCloneCfg{
								UnsyncedDataPercent: int(seed) * 14, RNG: rand.New(rand.NewPCG(seed, 1)),
							})
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.FS = clone
			again := open(t, cfg)
			checkNumbers(t, again, atCrash)
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Without syncs a crash of the machine takes the end of what was written, and never more than was written in about a
// second.
func TestCrash_NoSyncLosesOnlyTheEnd(t *testing.T) {
	t.Parallel()
	waits := uint64(3) // seeds with which numbers become durable before the crash
	if testing.Short() {
		waits = 1
	}
	for seed := range uint64(20) {
		fs := vfs.NewCrashableMem()
		s := open(t, pebble.Config{Dir: "db", FS: fs, NoSync: true, MemTableBytes: 256 << 10})
		createData(t, s)
		durable := 0
		number := 1
		write := func(count int) {
			for range count {
				if err := writeNumber(t.Context(), s, 0, number); err != nil {
					t.Fatal(err)
				}
				number++
			}
		}
		if write(100); seed < waits {
			durable = number - 1
			time.Sleep(1500 * time.Millisecond)
		}
		write(50 + int(seed)*7)
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%5) * 25, RNG: rand.New(rand.NewPCG(seed, 1))})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, pebble.Config{Dir: "db", FS: clone, NoSync: true})
		createData(t, again)
		rows, err := storetest.Collect(again.Get(t.Context(), store.Get{Table: "data", Rows: [][]byte{crashRow(0)}}))
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		if len(rows) == 1 {
			first, _, _ := strings.Cut(string(rows[0].Cells[0].Value), " ")
			if last, err = strconv.Atoi(first); err != nil || len(rows[0].Cells) != crashCells {
				t.Errorf("half a batch: %v", storetest.FormatRows(rows))
			}
			checkNumbers(t, again, []int{last})
		}
		if last < durable {
			t.Errorf("number %d is left, but %d was written more than a second before the crash", last, durable)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		after := open(t, pebble.Config{Dir: "db", FS: fs})
		checkNumbers(t, after, []int{number - 1}) // a clean end loses nothing
		if err := after.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What was deleted from a log table stands in another table, whatever a crash takes: the two have logs of their own.
func TestCrash_DeletesFromLogTablesOutlastNoOtherWrite(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		for seed := range uint64(12) {
			fs := vfs.NewCrashableMem()
			s := open(t, pebble.Config{Dir: "db", FS: fs, NoSync: noSync, MemTableBytes: 64 << 10})
			createData(t, s)
			createLog(t, s)
			j := newJournal(t, s, 1)
			stored := 0
			for range 20 + seed*5 {
				if err := errors.Join(j.put(4000), j.put(4000), writeNumber(t.Context(), s, 0, stored+1), j.trim(1)); err != nil {
					t.Fatal(err)
				}
				stored++
			}
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%4) * 33, RNG: rand.New(rand.NewPCG(seed, 1))})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, pebble.Config{Dir: "db", FS: clone, NoSync: noSync})
			checkNumbers(t, again, []int{stored})
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// crashChildDir names the directory to a copy of the test binary that is to be killed, crashChildNoSync is set if it is
// not to sync.
const (
	crashChildDir    = "PROMTSD_TEST_CRASH_DIR"
	crashChildNoSync = "PROMTSD_TEST_CRASH_NO_SYNC"
)

// TestCrash_ChildWrites is the child of TestCrash_KilledProcess: it writes until it is killed and prints what was
// acknowledged.
func TestCrash_ChildWrites(t *testing.T) {
	dir := os.Getenv(crashChildDir)
	if dir == "" {
		t.Skip("runs as the child of another test")
	}
	s := open(t, pebble.Config{Dir: dir, MemTableBytes: 64 << 10, NoSync: os.Getenv(crashChildNoSync) != ""})
	createData(t, s)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for writer := range crashWriters {
		wg.Go(func() {
			for number := 1; ; number++ {
				if err := writeNumber(t.Context(), s, writer, number); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				fmt.Printf("ack %d %d\n", writer, number)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestCrash_KilledProcess(t *testing.T) {
	t.Parallel()
	for _, lines := range []int{50, 51, 400, 1500, 1501} {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestCrash_ChildWrites$")
		child.Env = append(os.Environ(), crashChildDir+"="+dir)
		if lines%2 == 1 {
			child.Env = append(child.Env, crashChildNoSync+"=1")
		}
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := make([]int, crashWriters)
		in := bufio.NewScanner(out)
		for n := 1; in.Scan(); n++ {
			var writer, number int
			if _, err := fmt.Sscanf(in.Text(), "ack %d %d", &writer, &number); err == nil {
				acknowledged[writer] = number
			}
			if n == lines { // and read on, to hear of what was acknowledged before the kill took effect
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // it was killed
		s := open(t, pebble.Config{Dir: dir})
		checkNumbers(t, s, acknowledged)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
