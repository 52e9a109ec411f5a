package pebble_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

func TestOpen_FindsWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	for run := range 3 {
		s := open(t, pebble.Config{Dir: dir})
		tables, err := s.Tables(t.Context())
		if err != nil || len(tables) != run {
			t.Fatalf("run %d: Tables() = %v, %v", run, tables, err)
		}
		name := string(rune('a' + run))
		if err := s.CreateTable(t.Context(), store.Table{Name: name, Families: []string{"f", "g"}}); err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		b.Put(name, []byte("row"), "g", []byte("q"), 5, []byte(name))
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for earlier := range run + 1 {
			name := string(rune('a' + earlier))
			rows, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: name}))
			if got := strings.Join(storetest.FormatRows(rows), ";"); err != nil || got != "row g:q="+name {
				t.Errorf("run %d: table %s holds %s, %v", run, name, got, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpen_RefusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, pebble.Config{Dir: dir})
	_, err := pebble.Open(pebble.Config{Dir: dir})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "in use") ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("second Open = %v, want one that says that %s is in use", err, dir)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, pebble.Config{Dir: dir})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_RefusesWhatItDoesNotKnow(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(t *testing.T, fs vfs.FS)
	}{
		{"newer format of the tree", "format major version", func(t *testing.T, fs vfs.FS) {
			names, err := fs.List("db")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if strings.HasPrefix(name, "marker.format-version.") {
					if err := fs.Rename("db/"+name, "db/marker.format-version.000999.999"); err != nil {
						t.Fatal(err)
					}
				}
			}
		}},
		{"tree of another program", "comparer", func(t *testing.T, fs vfs.FS) {
			if err := fs.RemoveAll("db"); err != nil {
				t.Fatal(err)
			}
			db, err := lsm.Open("db", &lsm.Options{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			if err := open(t, pebble.Config{Dir: "db", FS: fs}).Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, fs)
			s, err := pebble.Open(pebble.Config{Dir: "db", FS: fs})
			if err == nil {
				_ = s.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open = %v, want it to name the %s", err, c.want)
			}
		})
	}
}

func TestOpen_WithoutDirectoryIsInvalid(t *testing.T) {
	if _, err := pebble.Open(pebble.Config{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Open without a directory = %v, want ErrInvalid", err)
	}
}

func TestMetrics_AreRegisteredAndRemoved(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	cfg := pebble.Config{Dir: "db", FS: vfs.NewMem(), Registerer: r}
	s := open(t, cfg)
	createData(t, s)
	if err := writeNumber(t.Context(), s, 0, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Collect(s.Scan(t.Context(), store.Scan{Table: "data"})); err != nil {
		t.Fatal(err)
	}
	const name = "promtsd_pebble_failed"
	text := help(t, r, name) + "# TYPE " + name + " gauge\n" + name + " 0\n"
	if err := testutil.GatherAndCompare(r, strings.NewReader(text), name); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(r, "promtsd_pebble_wal_fsync_duration_seconds"); err != nil || n != 1 {
		t.Errorf("%d fsync histograms, %v", n, err)
	}
	if _, err := pebble.Open(pebble.Config{Dir: "other", FS: vfs.NewMem(), Registerer: r}); err == nil {
		t.Error("a second store registered the same metrics")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(r); err != nil || n != 0 {
		t.Errorf("%d metrics after Close, %v", n, err)
	}
	if err := open(t, cfg).Close(); err != nil {
		t.Error(err)
	}
}

// help is the HELP line of a metric.
func help(t *testing.T, r *prometheus.Registry, name string) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return "# HELP " + name + " " + f.GetHelp() + "\n"
		}
	}
	return ""
}

// TestOpen_CompressesWhatLosesLittle is about blocks of packed cells, of which zstd takes a few hundredths.
func TestOpen_CompressesWhatLosesLittle(t *testing.T) {
	const rows, size, patience = 20_000, 300, 20 * time.Second
	cfg := pebble.Config{Dir: t.TempDir(), NoSync: true, MemTableBytes: 1 << 20}
	s := open(t, cfg)
	createData(t, s)
	r := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, size)
	for _, row := range r.Perm(rows) { // so that tables overlap, and have to be written again
		for i := range value {
			value[i] = byte(r.IntN(256)) * byte(min(1, r.IntN(8))) // 7.5 bits
		}
		var b store.Batch
		b.Put("data", binary.BigEndian.AppendUint32(nil, uint32(row)), "f", nil, 0, value)
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg) // which puts what was in memory into tables
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		got := tableBytes(t, cfg.Dir)
		if got < rows*size*99/100 {
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("%d bytes of values take %d on the disk", rows*size, got)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// tableBytes is the size of the tables in a directory.
func tableBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
