package pebble_test

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
)

// fillRows writes rows of 1,000 random bytes, a megabyte a batch, under a prefix of one byte each.
func fillRows(t testing.TB, s store.Store, prefixes, megabytes int) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{})
	value := make([]byte, 1000)
	var b store.Batch
	for n := range megabytes {
		for prefix := range prefixes {
			b.Reset()
			for i := range 1000 {
				_, _ = random.Read(value)
				b.Put("data", binary.BigEndian.AppendUint32([]byte{byte(prefix)}, uint32(n*1000+i)), "f", nil, 0, value)
			}
			if err := s.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func countRows(t testing.TB, s store.Store, prefix byte) (n int) {
	t.Helper()
	for _, err := range s.Scan(t.Context(), store.Scan{Table: "data", Ranges: []store.Range{
		{Start: []byte{prefix}, Stop: []byte{prefix + 1}},
	}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestDeleteRange_GivesSpaceBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, pebble.Config{Dir: dir, NoSync: true, MemTableBytes: 4 << 20})
	createData(t, s)
	fillRows(t, s, 4, 10)
	full := usage(t, dir)
	for prefix := range byte(4) {
		if prefix == 2 {
			continue
		}
		r := store.Range{Start: []byte{prefix}, Stop: []byte{prefix + 1}}
		if err := s.DeleteRange(t.Context(), "data", r); err != nil {
			t.Fatal(err)
		}
	}
	s.WaitForBackground()
	// Files that are of no use any more are deleted by and by; logs of writes stay, to be used again.
	for usage(t, dir) > full-20<<20 {
		runtime.Gosched()
	}
	for prefix := range byte(4) {
		want := 0
		if prefix == 2 {
			want = 10000
		}
		if n := countRows(t, s, prefix); n != want {
			t.Errorf("%d rows with prefix %d, want %d", n, prefix, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDeleteRange_SurvivesACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, pebble.Config{Dir: "db", FS: fs, MemTableBytes: 256 << 10})
	createData(t, s)
	fillRows(t, s, 3, 1)
	for _, c := range []struct {
		start, stop byte
		left        [3]int
	}{{0, 1, [3]int{0, 1000, 1000}}, {2, 3, [3]int{0, 1000, 0}}} {
		r := store.Range{Start: []byte{c.start}, Stop: []byte{c.stop}}
		if err := s.DeleteRange(t.Context(), "data", r); err != nil {
			t.Fatal(err)
		}
		again := open(t, pebble.Config{Dir: "db", FS: fs.CrashClone(vfs.CrashCloneCfg{})})
		for prefix, want := range c.left {
			if n := countRows(t, again, byte(prefix)); n != want {
				t.Errorf("%d rows with prefix %d, want %d", n, prefix, want)
			}
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
