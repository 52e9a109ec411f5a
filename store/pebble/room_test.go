package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after two minutes it does not hold that %s", what)
		}
	}
}

// Whatever file it is that cannot grow: writes are refused while it cannot, reads go on, and writes are taken again
// when there is room, all in one life of the store.
func TestFault_FullDiskIsWaitedFor(t *testing.T) {
	for _, suffix := range []string{".log", ".sst", ""} {
		for _, noSync := range []bool{false, true} {
			t.Run(fmt.Sprintf("%q,no_sync=%t", suffix, noSync), func(t *testing.T) {
				t.Parallel()
				disk := newFailing(vfs.NewMem(), suffix, syscall.ENOSPC)
				s := open(t, pebble.Config{Dir: "db", FS: disk, NoSync: noSync, MemTableBytes: 16 << 10})
				createData(t, s)
				if err := writeNumber(t.Context(), s, 0, 1); err != nil {
					t.Fatal(err)
				}
				disk.on.Store(true)
				last := 0
				for range 2 {
					var err error
					for err == nil {
						if err = writeNumber(t.Context(), s, 1, last+1); err == nil {
							last++
						}
					}
					if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
						t.Errorf("write on a full disk = %v, want ErrUnavailable and ENOSPC", err)
					}
				}
				if err := s.Writable(); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Writable on a full disk = %v, want ENOSPC", err)
				}
				rows, err := storetest.Collect(s.Get(t.Context(), store.Get{Table: "data", Rows: [][]byte{crashRow(0)}}))
				if err != nil || len(rows) != 1 {
					t.Errorf("read on a full disk: %d rows, %v", len(rows), err)
				}
				disk.on.Store(false)
				eventually(t, "the store is writable", func() bool { return s.Writable() == nil })
				if err := writeNumber(t.Context(), s, 2, 1); err != nil {
					t.Errorf("write after there is room = %v", err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, pebble.Config{Dir: "db", FS: disk})
				checkNumbers(t, s, []int{1, last, 1})
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestFault_OpenWaitsForRoom(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := open(t, pebble.Config{Dir: "db", FS: fs})
	createData(t, s)
	createLog(t, s)
	if err := errors.Join(writeNumber(t.Context(), s, 0, 1), s.Close()); err != nil {
		t.Fatal(err)
	}
	disk := newFailing(fs, "", syscall.ENOSPC)
	disk.on.Store(true)
	told := make(chan error, 100)
	report := func(err error) {
		select {
		case told <- err:
		default:
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := pebble.OpenContext(ctx, pebble.Config{Dir: "db", FS: disk, Report: report})
		result <- err
	}()
	if err := <-told; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("told is %v, want ENOSPC", err)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("OpenContext = %v, want the end of its context and ENOSPC", err)
	}
	if hits := disk.hits.Load(); hits > 20 {
		t.Errorf("it tried %d times to write to a disk without room, want some", hits)
	}
}

func TestFault_OpenGoesOnWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	disk := newFailing(vfs.NewMem(), "", syscall.ENOSPC)
	disk.on.Store(true)
	go func() {
		for disk.hits.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		disk.on.Store(false)
	}()
	s := open(t, pebble.Config{Dir: "db", FS: disk})
	createData(t, s)
	if err := errors.Join(writeNumber(t.Context(), s, 0, 1), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// A store whose disk stays full is closed soon, and loses nothing.
func TestFault_CloseDoesNotWaitForRoom(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{".log", ".sst"} {
		fs := vfs.NewCrashableMem()
		disk := newFailing(fs, suffix, syscall.ENOSPC)
		s := open(t, pebble.Config{Dir: "db", FS: disk, MemTableBytes: 16 << 10})
		createData(t, s)
		disk.on.Store(true)
		last := 0
		for err := error(nil); err == nil; {
			if err = writeNumber(t.Context(), s, 0, last+1); err == nil {
				last++
			}
		}
		if err := s.Close(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: Close on a full disk = %v, want ENOSPC", suffix, err)
		}
		again := open(t, pebble.Config{Dir: "db", FS: fs.CrashClone(vfs.CrashCloneCfg{})})
		checkNumbers(t, again, []int{last})
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Writes whose callers gave up are bounded in memory, and no write waits for ever, although its context never ends.
func TestFault_HungDiskHoldsLittleMemory(t *testing.T) {
	var hung atomic.Bool
	release := make(chan struct{})
	cfg := pebble.Config{Dir: "db", FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hung.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
			<-release
		}
		return nil
	}))}
	s := open(t, cfg.WithHungAfter(2*time.Second))
	createData(t, s)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	hung.Store(true)
	value := make([]byte, 2<<20)
	patient := make(chan error)
	go func() { patient <- writeNumber(context.Background(), s, 0, 1) }()
	for range 20 {
		var wg sync.WaitGroup
		for i := range 25 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				var b store.Batch
				b.Put("data", []byte{byte(i)}, "f", nil, 0, value)
				if err := s.Apply(ctx, &b); !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Apply on a hung disk = %v, want ErrUnavailable", err)
				}
			})
		}
		wg.Wait()
	}
	if grown := heap() - before; grown > 150<<20 {
		t.Errorf("500 writes of 2 MiB, all given up, hold %d MiB, want less than 150", grown>>20)
	}
	if err := <-patient; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a patient write on a hung disk = %v, want ErrUnavailable", err)
	}
	if err := s.Writable(); err == nil || !strings.Contains(err.Error(), "has not taken") {
		t.Errorf("Writable on a hung disk = %v, want that the disk does not answer", err)
	}
	close(release)
	eventually(t, "the store is writable", func() bool { return s.Writable() == nil })
	if err := errors.Join(writeNumber(t.Context(), s, 0, 2), s.Close()); err != nil {
		t.Error(err)
	}
}

// crowded is a disk with so much room.
type crowded struct {
	vfs.FS
	free atomic.Int64
}

func (c *crowded) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(c.free.Load()), TotalBytes: 1 << 30}, nil
}

// New data is refused before the disk is full, so that there is room for what the store has to do then.
func TestWritable_KeepsSomeRoom(t *testing.T) {
	t.Parallel()
	disk := &crowded{FS: vfs.NewMem()}
	disk.free.Store(1 << 29)
	s := open(t, pebble.Config{Dir: "db", FS: disk})
	createData(t, s)
	for _, c := range []struct {
		free     int64
		writable bool
	}{{1 << 29, true}, {40 << 20, false}, {54 << 20, false}, {80 << 20, true}, {54 << 20, true}} {
		disk.free.Store(c.free)
		if c.writable {
			eventually(t, fmt.Sprintf("%d bytes are enough", c.free), func() bool { return s.Writable() == nil })
		} else {
			eventually(t, fmt.Sprintf("%d bytes are too few", c.free),
				func() bool { return errors.Is(s.Writable(), store.ErrUnavailable) })
		}
		if err := writeNumber(t.Context(), s, 0, 1); err != nil {
			t.Errorf("write with %d bytes free = %v", c.free, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
