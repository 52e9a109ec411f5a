package uid

import (
	"hash/maphash"

	"github.com/promtsd/promtsd/mapping/clockcache"
)

// meanTextBytes is how long the text of a cached name may be on average; where texts are longer, fewer are cached.
// Besides its text an entry takes some 130 bytes.
const meanTextBytes = 128

func newCache[K comparable, V any](
	entries int, hash func(maphash.Seed, K) uint64, textBytes func(K, V) int,
) *clockcache.Cache[K, V] {
	return clockcache.New(clockcache.Config[K, V]{
		MaxEntries: entries, MaxBytes: entries * meanTextBytes, Hash: hash, Size: textBytes,
	})
}

func hashName(seed maphash.Seed, k nameKey) uint64 {
	return maphash.String(seed, k.text) + uint64(k.kind)
}

// hashID spreads ids that follow one another over the shards; they need no seed, since the process chose them.
func hashID(_ maphash.Seed, id ID) uint64 { return uint64(id.UID)*kinds + uint64(id.Kind) }
