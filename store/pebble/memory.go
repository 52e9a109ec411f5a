package pebble

// OutsideGo is about how much memory a Store takes that Go's runtime does not know of: block caches and tables in
// memory are C's where the program was built with it.
func (cfg Config) OutsideGo() int64 {
	if !usesC {
		return 0
	}
	return max(cacheBytes(cfg), memTables*int64(memTableBytes(cfg))) + logCache(cfg) // caches make room for tables
}
