package pebble_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

// logStore makes every table a log table.
type logStore struct{ *pebble.Store }

func (s logStore) CreateTable(ctx context.Context, t store.Table) error {
	t.Log = true
	return s.Store.CreateTable(ctx, t)
}

func openLogInMemory(t testing.TB) store.Store {
	return logStore{open(t, pebble.Config{Dir: "db", FS: vfs.NewMem()})}
}

func TestLog_Store(t *testing.T) { storetest.Run(t, openLogInMemory) }
func TestLog_Model(t *testing.T) { storetest.Model(t, openLogInMemory) }

func TestLog_StoreWithSmallTables(t *testing.T) {
	storetest.Run(t, func(t testing.TB) store.Store {
		return logStore{open(t, pebble.Config{Dir: "db", FS: vfs.NewMem(), MemTableBytes: 32 << 10})}
	})
}

func createLog(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.CreateTable(t.Context(), store.Table{Name: "log", Families: []string{"f"}, Log: true}); err != nil {
		t.Fatal(err)
	}
}

func TestLog_BatchesDoNotMixWithOtherTables(t *testing.T) {
	s := open(t, pebble.Config{Dir: "db", FS: vfs.NewMem()})
	createData(t, s)
	createLog(t, s)
	for _, tables := range [][]string{{"data", "log"}, {"log", "data"}, {"log", "log", "data"}} {
		var b store.Batch
		for _, table := range tables {
			b.Put(table, []byte("r"), "f", nil, 0, nil)
		}
		if err := s.Apply(t.Context(), &b); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Apply to %q = %v, want ErrInvalid", tables, err)
		}
	}
	var checks []store.Check
	for _, table := range []string{"log", "data", "log"} {
		at := store.Coord{Table: table, Row: []byte{byte(len(checks))}, Family: "f"}
		checks = append(checks, store.Check{Coord: at, Value: []byte(table)})
	}
	for _, want := range []bool{true, false} {
		put, err := s.CheckAndPut(t.Context(), checks)
		if err != nil || len(put) != 3 || put[0] != want || put[1] != want || put[2] != want {
			t.Errorf("CheckAndPut on both kinds of tables = %v, %v, want all %t", put, err, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// journal writes cells as the journal of a writer does, and deletes the oldest.
type journal struct {
	t       testing.TB
	s       store.Store
	writer  byte
	payload []byte // random bytes that cells are cut from

	first, next uint64 // of the cells that are there
}

func newJournal(t testing.TB, s store.Store, writer byte) *journal {
	j := &journal{t: t, s: s, writer: writer, payload: make([]byte, 64<<10)}
	_, _ = rand.NewChaCha8([32]byte{writer}).Read(j.payload)
	return j
}

func (j *journal) row(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{j.writer}, n) }

func (j *journal) value(n uint64, size int) []byte {
	at := int(n*7919) % (len(j.payload) - size)
	return j.payload[at : at+size]
}

func (j *journal) put(size int) error {
	var b store.Batch
	b.Put("log", j.row(j.next), "f", nil, 0, j.value(j.next, size))
	err := j.s.Apply(j.t.Context(), &b)
	if err == nil {
		j.next++
	}
	return err
}

// trim deletes all but the last cells, some at a time.
func (j *journal) trim(keep uint64) error {
	for j.next-j.first > keep {
		var b store.Batch
		upTo := min(j.next-keep, j.first+16)
		for n := j.first; n < upTo; n++ {
			b.Delete("log", j.row(n), "f", nil, 0)
		}
		if err := j.s.Apply(j.t.Context(), &b); err != nil {
			return err
		}
		j.first = upTo
	}
	return nil
}

// check compares a store with what the journal should hold, from the first cell that must not be missing.
func (j *journal) check(s store.Store, first, next uint64, size int) {
	j.t.Helper()
	n := uint64(0)
	seen := false
	for row, err := range s.Scan(j.t.Context(), store.Scan{Table: "log", Ranges: []store.Range{
		{Start: []byte{j.writer}, Stop: []byte{j.writer + 1}},
	}}) {
		if err != nil {
			j.t.Fatal(err)
		}
		got := binary.BigEndian.Uint64(row.Key[1:])
		if !seen && got > first || seen && got != n+1 {
			j.t.Fatalf("writer %d: the cell behind %d is %d, want all from %d", j.writer, n, got, first)
		}
		if !bytes.Equal(row.Cells[0].Value, j.value(got, size)) {
			j.t.Fatalf("writer %d: cell %d has other bytes", j.writer, got)
		}
		n, seen = got, true
	}
	if next > first && n+1 < next {
		j.t.Fatalf("writer %d: the last cell is %d, want %d", j.writer, n, next-1)
	}
}

func TestLog_CrashLosesNothingAcknowledged(t *testing.T) {
	const size, writers = 2000, 3
	for seed := range uint64(8) {
		fs := vfs.NewCrashableMem()
		cfg := pebble.Config{Dir: "db", FS: fs, MemTableBytes: 32 << 10}
		s := open(t, cfg)
		createData(t, s)
		createLog(t, s)
		var mu sync.Mutex
		var journals [writers]*journal
		var first, next [writers]uint64 // as of the crash
		var clone *vfs.MemFS
		var wg sync.WaitGroup
		for w := range writers {
			j := newJournal(t, s, byte(w))
			journals[w] = j
			wg.Go(func() {
				for n := range 150 {
					mu.Lock()
					err := errors.Join(j.put(size), j.trim(20))
					if w == 0 && n == 50+int(seed)*10 {
						for i, j := range journals {
							first[i], next[i] = j.first, j.next
						}
						clone = fs.CrashClone(vfs.CrashCloneCfg{
							UnsyncedDataPercent: int(seed) * 14, RNG: rand.New(rand.NewPCG(seed, 1)),
						})
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					if err := writeNumber(t.Context(), s, w, n); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, f := range []vfs.FS{clone, fs} { // after the crash, and after the clean end
			cfg.FS = f
			again := open(t, cfg)
			for w, j := range journals {
				if f == fs {
					first[w], next[w] = j.first, j.next
				}
				j.check(again, first[w], next[w], size)
				j.s = again
				if err := errors.Join(j.put(size), j.trim(0)); err != nil {
					t.Error(err)
				}
				j.next-- // for the other file system
				j.first = min(j.first, j.next)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestLog_FailuresOfItsTreeStopTheStore(t *testing.T) {
	for _, suffix := range []string{".log", "MANIFEST-000001"} {
		disk := newFailing(vfs.NewMem(), suffix, syscall.EIO)
		s := open(t, pebble.Config{Dir: "db", FS: disk, MemTableBytes: 64 << 10})
		createData(t, s)
		createLog(t, s)
		j := newJournal(t, s, 1)
		if err := j.put(1000); err != nil {
			t.Fatal(err)
		}
		disk.on.Store(true)
		var err error
		for err == nil {
			err = errors.Join(j.put(1000), j.trim(10))
		}
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s fails: put = %v, want ErrUnavailable", suffix, err)
		}
		if err := writeNumber(t.Context(), s, 0, 1); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s fails: write to another table = %v, want ErrUnavailable", suffix, err)
		}
		j.check(s, j.first+16, j.next, 1000)
		if err := s.Close(); err == nil {
			t.Errorf("%s fails: Close = nil", suffix)
		}
	}
}

func TestLog_FullDiskRefusesWritesUntilFlushesSucceed(t *testing.T) {
	t.Parallel()
	disk := newFailing(vfs.NewMem(), ".sst", syscall.ENOSPC)
	s := open(t, pebble.Config{Dir: "db", FS: disk, MemTableBytes: 64 << 10})
	createData(t, s)
	createLog(t, s)
	j := newJournal(t, s, 1)
	disk.on.Store(true)
	var err error
	for err == nil {
		err = j.put(1000)
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("put on a full disk = %v, want ErrUnavailable", err)
	}
	if err := writeNumber(t.Context(), s, 0, 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("write to another table on a full disk = %v, want ErrUnavailable", err)
	}
	disk.on.Store(false)
	for err != nil {
		if err = j.put(1000); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("put after space came back = %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestLog_StaysSmallAndIsNotRewritten is also true for cells that stay behind, at the price of compactions.
func TestLog_StaysSmallAndIsNotRewritten(t *testing.T) {
	const size, keep, memTable = 20 << 10, 100, 1 << 20
	dir := t.TempDir()
	registry := prometheus.NewRegistry()
	cfg := pebble.Config{Dir: dir, MemTableBytes: memTable, NoSync: true, Registerer: registry}
	s := open(t, cfg)
	createLog(t, s)
	journals := []*journal{newJournal(t, s, 1), newJournal(t, s, 9)}
	stays := newJournal(t, s, 1) // every hundredth cell of writer 1
	largest := int64(0)
	for n := range 3000 {
		for _, j := range journals {
			if err := errors.Join(j.put(size), j.trim(keep)); err != nil {
				t.Fatal(err)
			}
		}
		if n%50 == 0 {
			largest = max(largest, usage(t, filepath.Join(dir, "log")))
		}
	}
	put := int64(2 * 3000 * size)
	live := int64(2 * keep * size)
	// The cells that are there, what may be left of deleted ones, and write-ahead logs, some of them to be used again.
	if limit := 2*live + 20*memTable; largest > limit {
		t.Errorf("the directory of the log tables grew to %d bytes, want at most %d", largest, limit)
	}
	if got := gather(t, registry, "promtsd_pebble_compaction_written_bytes_total", "log"); got > float64(put)/20 {
		t.Errorf("compactions wrote %.0f bytes of %d put", got, put)
	}
	for n := uint64(0); n < 2000; n += 4 { // cells that stay, one in four, and are far apart
		stays.next = n
		if err := stays.put(size); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range journals {
		if err := j.trim(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Registerer = nil
	s = open(t, cfg)
	found := 0
	for _, err := range s.Scan(t.Context(), store.Scan{Table: "log"}) {
		if err != nil {
			t.Fatal(err)
		}
		found++
	}
	if found != 500 {
		t.Errorf("%d cells stay, want 500", found)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A log that is empty when the store is closed, as after a stop in good order, takes no space when it is open again.
func TestLog_EmptyTakesNoSpace(t *testing.T) {
	dir := t.TempDir()
	s := open(t, pebble.Config{Dir: dir, NoSync: true})
	createLog(t, s)
	j := newJournal(t, s, 'a')
	for range 1000 {
		if err := j.put(30 << 10); err != nil {
			t.Fatal(err)
		}
	}
	var all store.Batch
	for n := range j.next {
		all.Delete("log", j.row(n), "f", nil, 0)
	}
	if err := s.Apply(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // before the space is given back in the background
		t.Fatal(err)
	}
	s = open(t, pebble.Config{Dir: dir, NoSync: true})
	// Files that are of no use any more are removed in the background, in no time.
	const patience = 10 * time.Second
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		got := usage(t, filepath.Join(dir, "log"))
		if got < 64<<10 {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("after 30 MB were put and deleted the log takes %d bytes", got)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// usage is the bytes of a directory's files, but for those that are gone before they are looked at.
func usage(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			bytes += info.Size()
		}
	}
	return bytes
}

// gather is the sum of a metric's series of one tree.
func gather(t testing.TB, r *prometheus.Registry, name, tree string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && strings.Contains(fmt.Sprint(m.GetLabel()), fmt.Sprintf("%q", tree)) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
