package pebble

import (
	"log/slog"
	"runtime"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
)

const (
	defaultCacheBytes    = 256 << 20
	defaultMemTableBytes = 64 << 20
	blockBytes           = 32 << 10  // of cells in one block; an hour row of a series at 15 s is about 4 KiB of it
	indexBlockBytes      = 256 << 10 // of block addresses
	filterBitsPerRow     = 10        // 1 in 100 of the rows that are not there costs a read
)

// newOptions sets the tree up. Its format version is fixed here, so that a newer library does not change the files of
// a directory before this package was made for it.
func newOptions(cfg Config, h *health, log *slog.Logger) *lsm.Options {
	comparer := newComparer()
	schema := newKeySchema(comparer)
	opts := &lsm.Options{
		Comparer:           comparer,
		KeySchema:          schema.Name,
		KeySchemas:         sstable.MakeKeySchemas(&schema),
		FormatMajorVersion: lsm.FormatTableFormatV6,
		FS:                 cfg.FS,
		Logger:             h,
		CacheSize:          cfg.CacheBytes,
		MemTableSize:       cfg.MemTableBytes,
		// Four tables in memory ride out a burst that flushes cannot follow. Level 0 is merged early, because each of its
		// layers costs every scan, and stops writes late.
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       32,
		BytesPerSync:                1 << 20,
		WALBytesPerSync:             1 << 20,
	}
	if opts.CacheSize == 0 {
		opts.CacheSize = defaultCacheBytes
	}
	if opts.MemTableSize == 0 {
		opts.MemTableSize = defaultMemTableBytes
	}
	compactions := max(1, min(4, runtime.GOMAXPROCS(0)-1))
	opts.CompactionConcurrencyRange = func() (lower, upper int) { return 1, compactions }
	for i := range opts.Levels {
		l := &opts.Levels[i]
		l.BlockSize, l.IndexBlockSize = blockBytes, indexBlockBytes
		l.FilterPolicy = bloom.FilterPolicy(filterBitsPerRow)
		// Most data rests in the last level and is read more often than rewritten there.
		profile := block.FastestCompression
		if i == len(opts.Levels)-1 {
			profile = block.GoodCompression
		}
		l.Compression = func() *sstable.CompressionProfile { return profile }
	}
	opts.EventListener = h.events(log)
	opts.WithFSDefaults()
	opts.FS = &failStopFS{FS: opts.FS, health: h}
	return opts
}
