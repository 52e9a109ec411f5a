package pebble

import (
	"cmp"
	"math"
	"runtime"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
)

const (
	defaultCacheBytes    = 256 << 20
	defaultMemTableBytes = 32 << 20
	memTables            = 4 // of a tree, at most
	// of cells in one block; a packed hour row of a series at 15 s is some 400 bytes of it
	blockBytes       = 32 << 10
	indexBlockBytes  = 256 << 10 // of block addresses
	filterBitsPerRow = 10        // 1 in 100 of the rows that are not there costs a read

	logMemTableBytes = 8 << 20   // at most, of the log tables' tree, which has as many
	logFileParts     = 4         // files of this part of a memtable, so that a cell that stays keeps little else
	logBlockBytes    = 128 << 10 // of several large cells
	logCacheBytes    = 8 << 20   // besides the memtables, which the cache makes room for
	never            = math.MaxInt32
)

// commonOptions are those of both trees. The format version is fixed here, so that a newer library does not change the
// files of a directory before this package was made for it.
func commonOptions(cfg Config, h *health) *lsm.Options {
	comparer := newComparer()
	schema := newKeySchema(comparer)
	return &lsm.Options{
		Comparer:           comparer,
		KeySchema:          schema.Name,
		KeySchemas:         sstable.MakeKeySchemas(&schema),
		FormatMajorVersion: lsm.FormatTableFormatV6,
		FS:                 cfg.FS,
		Logger:             h,
		EventListener:      h.events(),
		BytesPerSync:       1 << 20,
		WALBytesPerSync:    1 << 20,
	}
}

// dataOptions sets the tree of the data up.
func dataOptions(cfg Config, h *health) *lsm.Options {
	opts := commonOptions(cfg, h)
	opts.CacheSize = cacheBytes(cfg)
	opts.MemTableSize = memTableBytes(cfg)
	// Four memtables ride out a burst that flushes cannot follow. Level 0 is merged early, because each of its
	// layers costs every scan, and stops writes late.
	opts.MemTableStopWritesThreshold = memTables
	opts.L0CompactionThreshold = 2
	opts.L0StopWritesThreshold = 32
	compactions := max(1, min(4, runtime.GOMAXPROCS(0)-1))
	opts.CompactionConcurrencyRange = func() (lower, upper int) { return 1, compactions }
	tight := tightCompression()
	for i := range opts.Levels {
		l := &opts.Levels[i]
		l.BlockSize, l.IndexBlockSize = blockBytes, indexBlockBytes
		l.FilterPolicy = bloom.FilterPolicy(filterBitsPerRow)
		profile := tight
		if i == 0 { // what soon goes on
			profile = block.FastestCompression
		}
		l.Compression = func() *sstable.CompressionProfile { return profile }
	}
	return opts
}

// tightCompression is zstd for each block that it makes smaller at all. The profiles of the library leave blocks alone
// that lose less than a tenth, as those of packed cells do.
func tightCompression() *block.CompressionProfile {
	p := *block.GoodCompression
	p.Name = "promtsd"
	p.MinReductionPercent, p.AdaptiveReductionCutoffPercent = 1, 0
	return &p
}

// logOptions sets the tree of the log tables up: nothing is compressed, nothing compacted but by the reaper, and writes
// never wait for that.
func logOptions(cfg Config, h *health) *lsm.Options {
	opts := commonOptions(cfg, h)
	opts.MemTableSize = logMemTable(cfg)
	opts.MemTableStopWritesThreshold = memTables
	opts.CacheSize = logCache(cfg)
	opts.DisableAutomaticCompactions = true
	opts.L0CompactionThreshold, opts.L0StopWritesThreshold = never, never
	opts.TargetFileSizes[0] = int64(opts.MemTableSize / logFileParts)
	for i := range opts.Levels {
		l := &opts.Levels[i]
		l.BlockSize, l.IndexBlockSize = logBlockBytes, indexBlockBytes
		l.Compression = func() *sstable.CompressionProfile { return block.NoCompression }
	}
	return opts
}

func cacheBytes(cfg Config) int64 { return cmp.Or(cfg.CacheBytes, defaultCacheBytes) }

func logCache(cfg Config) int64 { return logCacheBytes + memTables*int64(logMemTable(cfg)) }

func memTableBytes(cfg Config) uint64 {
	if cfg.MemTableBytes == 0 {
		return defaultMemTableBytes
	}
	return cfg.MemTableBytes
}

func logMemTable(cfg Config) uint64 { return min(memTableBytes(cfg), logMemTableBytes) }
