package pebble_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

// failing is a disk on which, once it is on, writing to files whose names have the suffix fails.
type failing struct {
	vfs.FS
	on   atomic.Bool
	hits atomic.Int64
}

func newFailing(inner vfs.FS, suffix string, cause error) *failing {
	f := &failing{}
	f.FS = errorfs.Wrap(inner, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f.on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, suffix) {
			f.hits.Add(1)
			return fmt.Errorf("write to %s: %w", op.Path, cause)
		}
		return nil
	}))
	return f
}

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestFault_StopsForGood(t *testing.T) {
	for _, c := range []struct {
		name, suffix string
		noSync       bool
		memTable     uint64 // small ones are flushed, and the log changes with them
	}{
		{"log", ".log", false, 0},
		{"log without syncs", ".log", true, 0},
		{"log with small tables", ".log", false, 16 << 10},
		{"log without syncs with small tables", ".log", true, 16 << 10},
		{"directory", "db", false, 16 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			disk := newFailing(fs, c.suffix, syscall.EIO)
			var log lockedBuffer
			s := open(t, pebble.Config{
				Dir: "db", FS: disk, NoSync: c.noSync, MemTableBytes: c.memTable, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			createData(t, s)
			for number := 1; number <= 5; number++ {
				if err := writeNumber(t.Context(), s, 0, number); err != nil {
					t.Fatal(err)
				}
			}
			disk.on.Store(true)
			var acknowledged atomic.Int64
			acknowledged.Store(5)
			var wg sync.WaitGroup
			for range 4 { // several at once, none of which may hang or take the process down
				wg.Go(func() {
					for {
						err := writeNumber(t.Context(), s, 1, 1)
						if err == nil {
							continue
						}
						if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
							t.Errorf("write on a failing disk = %v, want ErrUnavailable and EIO", err)
						}
						return
					}
				})
			}
			wg.Wait()
			disk.on.Store(false)
			if err := writeNumber(t.Context(), s, 0, 6); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("write after the disk failed = %v, want ErrUnavailable", err)
			}
			if _, err := s.CheckAndPut(t.Context(), []store.Check{{
				Coord: store.Coord{Table: "data", Row: []byte("x"), Family: "f"},
			}}); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("CheckAndPut after the disk failed = %v, want ErrUnavailable", err)
			}
			rows, err := storetest.Collect(s.Get(t.Context(), store.Get{Table: "data", Rows: [][]byte{crashRow(0)}}))
			if err != nil || len(rows) != 1 {
				t.Errorf("read after the disk failed: %d rows, %v", len(rows), err)
			}
			<-s.Failed()
			if err := s.Writable(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Writable after the disk failed = %v, want EIO", err)
			}
			if err := s.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Close after the disk failed = %v, want EIO", err)
			}
			if !strings.Contains(log.String(), "store stopped taking writes") {
				t.Errorf("the log does not say that the store stopped:\n%s", log.String())
			}
		})
	}
}

func TestFault_FailedLogLosesNothingAcknowledged(t *testing.T) {
	fs := vfs.NewCrashableMem()
	// which does not see writes to logs that are used again, so the table must not fill up
	disk := newFailing(fs, ".log", syscall.EIO)
	s := open(t, pebble.Config{Dir: "db", FS: disk})
	createData(t, s)
	last := 0
	for number := 1; ; number++ {
		if number == 30 {
			disk.on.Store(true)
		}
		if err := writeNumber(t.Context(), s, 0, number); err != nil {
			break
		}
		last = number
	}
	if last != 29 {
		t.Errorf("the last number acknowledged is %d, want 29", last)
	}
	_ = s.Close()
	again := open(t, pebble.Config{Dir: "db", FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	checkNumbers(t, again, []int{last})
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestFault_FullDiskRefusesWritesUntilFlushesSucceed(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	disk := newFailing(fs, ".sst", syscall.ENOSPC)
	s := open(t, pebble.Config{Dir: "db", FS: disk, MemTableBytes: 16 << 10})
	createData(t, s)
	disk.on.Store(true)
	last, number := 0, 0
	for {
		number++
		ctx, cancel := context.WithCancel(t.Context())
		err := writeNumber(ctx, s, 0, number)
		cancel()
		if err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("write on a full disk = %v, want ErrUnavailable", err)
			}
			break
		}
		last = number
	}
	if disk.hits.Load() == 0 {
		t.Fatal("no table was written")
	}
	disk.on.Store(false)
	for err := errors.New("first"); err != nil; {
		if err = writeNumber(t.Context(), s, 0, number); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("write after space came back = %v", err)
		}
		last = number
	}
	checkNumbers(t, s, []int{last})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestFault_ManifestStopsForGood(t *testing.T) {
	fs := vfs.NewMem()
	disk := new(failing)
	disk.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if disk.on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "MANIFEST") {
			return syscall.EIO
		}
		return nil
	}))
	s := open(t, pebble.Config{Dir: "db", FS: disk, MemTableBytes: 16 << 10})
	createData(t, s)
	disk.on.Store(true)
	for number := 1; ; number++ {
		if err := writeNumber(t.Context(), s, 0, number); err != nil {
			if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
				t.Errorf("write = %v, want ErrUnavailable and EIO", err)
			}
			break
		}
	}
	if _, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: "data"})); err != nil {
		t.Errorf("scan after the failure: %v", err)
	}
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Close = %v, want EIO", err)
	}
}

func TestFault_OpenReportsEveryFailure(t *testing.T) {
	t.Parallel()
	full := vfs.NewCrashableMem()
	s := open(t, pebble.Config{Dir: "db", FS: full})
	createData(t, s)
	createLog(t, s)
	if err := writeNumber(t.Context(), s, 0, 1); err != nil {
		t.Fatal(err)
	}
	for name, disk := range map[string]func() vfs.FS{
		"new":                         func() vfs.FS { return vfs.NewMem() },
		"after a crash":               func() vfs.FS { return full.CrashClone(vfs.CrashCloneCfg{}) },
		"after a crash, and for ever": func() vfs.FS { return full.CrashClone(vfs.CrashCloneCfg{}) },
	} {
		t.Run(name, func(t *testing.T) {
			// openFailing has a call of the disk fail, and returns how many there were.
			openFailing := func(index int64) int64 {
				var calls atomic.Int64
				fs := errorfs.Wrap(disk(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					n := calls.Add(1) - 1
					// What table files meet is tried again, until it succeeds.
					if n == index || index >= 0 && n > index && strings.HasSuffix(name, "for ever") &&
						!strings.HasSuffix(op.Path, ".sst") {
						return errorfs.ErrInjected
					}
					return nil
				}))
				opened := make(chan error, 1)
				go func() {
					s, err := pebble.Open(pebble.Config{Dir: "db", FS: fs})
					if err == nil {
						_ = s.Close()
					}
					opened <- err
				}()
				select {
				case err := <-opened:
					if err != nil && index < 0 {
						t.Errorf("Open without a failure = %v", err)
					}
				case <-time.After(time.Minute):
					t.Errorf("Open hangs when call %d fails", index)
				}
				return calls.Load()
			}
			n := openFailing(-1)
			if n < 5 {
				t.Fatalf("Open made only %d calls of the disk", n)
			}
			var all sync.WaitGroup
			for index := range n {
				all.Go(func() { openFailing(index) })
			}
			all.Wait()
		})
	}
}

func TestFault_CorruptTableIsAnError(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, pebble.Config{Dir: "db", FS: fs, MemTableBytes: 16 << 10})
	createData(t, s)
	random := rand.NewChaCha8([32]byte{})
	for row := range byte(100) { // many blocks, of which only the first holds the catalog
		value := make([]byte, 4<<10)
		_, _ = random.Read(value)
		var b store.Batch
		b.Put("data", []byte{row}, "f", nil, 0, value)
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, pebble.Config{Dir: "db", FS: fs}) // which has read the catalog when the tables go bad
	damage(t, fs, "db", ".sst")
	if _, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: "data"})); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Scan over corrupt tables = %v, want ErrCorrupt", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFault_DamagedLogIsAnError is about the write-ahead log of either tree, damaged before its last records, which a
// crash cannot do: what was acknowledged behind the damage must not be lost without a word.
func TestFault_DamagedLogIsAnError(t *testing.T) {
	for _, dir := range []string{"db", "db/log"} {
		for _, life := range []string{"first", "second"} {
			fs := vfs.NewCrashableMem()
			cfg := pebble.Config{Dir: "db", FS: fs}
			s := open(t, cfg)
			createData(t, s)
			createLog(t, s)
			if life == "second" {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, cfg)
			}
			j := newJournal(t, s, 1)
			for n := range 60 {
				if err := errors.Join(j.put(4000), writeNumber(t.Context(), s, 0, n)); err != nil {
					t.Fatal(err)
				}
			}
			crashed := fs.CrashClone(vfs.CrashCloneCfg{})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.FS = crashed
			damage(t, crashed, dir, ".log")
			s, err := pebble.Open(cfg)
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), ".log") {
				t.Errorf("%s life, log in %s damaged: Open = %v, want ErrCorrupt and the name of the log", life, dir, err)
			}
			if err == nil {
				_ = s.Close()
				continue
			}
			cutLog(t, crashed, err.Error())
			s = open(t, cfg)
			if dir == "db" {
				j.check(s, j.first, j.next, 4000)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// cutLog does what README advises: it cuts a log off where the message says that it is damaged.
func cutLog(t *testing.T, fs vfs.FS, message string) {
	t.Helper()
	place := regexp.MustCompile(`\((\S+\.log): (\d+)\)`).FindStringSubmatch(message)
	if place == nil {
		t.Fatalf("%q does not say where the log is damaged", message)
	}
	size, err := strconv.Atoi(place[2])
	if err != nil {
		t.Fatal(err)
	}
	file, err := fs.Open(place[1])
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if file, err = fs.Create(place[1], vfs.WriteCategoryUnspecified); err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(content[:size])
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// damage overwrites some bytes in the middle of each file of a directory whose name has the suffix.
func damage(t *testing.T, fs vfs.FS, dir, suffix string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		file, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(bytes.Repeat([]byte{0xa5}, 64), info.Size()/2); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestApply_ReturnsWhenItsContextEndsOnASlowDisk(t *testing.T) {
	release, reached := make(chan struct{}), make(chan struct{}, 1)
	var slow atomic.Bool
	s := open(t, pebble.Config{Dir: "db", FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if slow.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
			select {
			case reached <- struct{}{}:
			default:
			}
			<-release
		}
		return nil
	}))})
	createData(t, s)
	slow.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var b store.Batch
	b.Put("data", []byte("r"), "f", []byte("q"), 0, []byte("v"))
	result := make(chan error)
	go func() { result <- s.Apply(ctx, &b) }()
	<-reached
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Apply = %v, want context.Canceled and ErrUnavailable", err)
	}
	b.Reset() // the caller may use it again
	b.Put("data", []byte("x"), "f", []byte("x"), 0, []byte("x"))
	close(release)
	for { // the write goes on
		rows, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: "data"}))
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 1 {
			if got := storetest.FormatRows(rows)[0]; got != "r f:q=v" {
				t.Errorf("the store holds %s, want r f:q=v", got)
			}
			break
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
