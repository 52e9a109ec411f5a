package seriescache

// Finder finds the series of a request in the cache while the request is being decoded. It implements request.Finder.
type Finder struct {
	cache    *Cache
	entries  []*Entry // by position in the request; nil: not held
	expected *Entry
}

// NewFinder returns a Finder.
func (c *Cache) NewFinder() *Finder { return &Finder{cache: c} }

// Reset implements request.Finder.
func (f *Finder) Reset() {
	clear(f.entries)
	f.entries, f.expected = f.entries[:0], nil
}

// Expect implements request.Finder.
func (f *Finder) Expect(b []byte) int {
	f.expected = nil
	before := f.before()
	if before == nil {
		return 0
	}
	e := before.follower.Load()
	// A key that begins with a zero is of references; b could imitate it.
	if e == nil || !e.held() || len(e.raw) > len(b) || len(e.raw) == 0 || e.raw[0] == 0 ||
		string(b[:len(e.raw)]) != string(e.raw) {
		return 0
	}
	f.expected = e
	return len(e.raw)
}

// Next implements request.Finder.
func (f *Finder) Next(labels []byte, expected bool) {
	e := f.expected
	if expected {
		e.touch()
	} else {
		e = f.cache.after(f.before(), labels)
	}
	f.entries = append(f.entries, e)
}

// before is the entry of the latest series, nil if there is none.
func (f *Finder) before() *Entry {
	if len(f.entries) == 0 {
		return nil
	}
	return f.entries[len(f.entries)-1]
}
