package pebble_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
)

// Compactions cannot go on where a table file is corrupt; what is written meanwhile stays in more files.
func TestFault_CorruptTableDoesNotStopWrites(t *testing.T) {
	fs := vfs.NewMem()
	cfg := pebble.Config{Dir: "db", FS: fs, MemTableBytes: 64 << 10}
	s := open(t, cfg)
	createData(t, s)
	random := rand.NewChaCha8([32]byte{})
	put := func(row byte) error {
		value := make([]byte, 4<<10)
		_, _ = random.Read(value)
		var b store.Batch
		b.Put("data", []byte{row, byte(random.Uint64())}, "f", nil, 0, value)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return s.Apply(ctx, &b)
	}
	for i := range 400 {
		if err := put(byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	damage(t, fs, "db", ".sst")
	for i := range 5000 {
		if err := put(byte(i)); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
