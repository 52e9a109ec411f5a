package pebble_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

func TestStore(t *testing.T) { storetest.Run(t, openInMemory) }
func TestModel(t *testing.T) { storetest.Model(t, openInMemory) }

func BenchmarkStore(b *testing.B) { storetest.Benchmark(b, openOnDisk) }

func BenchmarkStoreNoSync(b *testing.B) {
	storetest.Benchmark(b, func(t testing.TB) store.Store {
		return open(t, pebble.Config{Dir: t.TempDir(), NoSync: true})
	})
}

// BenchmarkStoreFlushed reads from table files rather than from memory.
func BenchmarkStoreFlushed(b *testing.B) {
	storetest.Benchmark(b, func(t testing.TB) store.Store {
		return open(t, pebble.Config{Dir: t.TempDir(), MemTableBytes: 2 << 20})
	})
}

// TestStore_SmallTables runs the suite with tables so small that most batches are flushed and compacted.
func TestStore_SmallTables(t *testing.T) {
	storetest.Run(t, func(t testing.TB) store.Store {
		return open(t, pebble.Config{Dir: "db", FS: vfs.NewMem(), MemTableBytes: 32 << 10, CacheBytes: 1 << 20})
	})
}

func TestStore_NoSync(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) store.Store {
		return open(t, pebble.Config{Dir: t.TempDir(), NoSync: true})
	})
}

func openInMemory(t testing.TB) store.Store {
	return open(t, pebble.Config{Dir: "db", FS: vfs.NewMem()})
}
func openOnDisk(t testing.TB) store.Store { return open(t, pebble.Config{Dir: t.TempDir()}) }

func open(t testing.TB, cfg pebble.Config) *pebble.Store {
	t.Helper()
	s, err := pebble.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
