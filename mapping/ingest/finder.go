package ingest

import "github.com/promtsd/promtsd/mapping/request"

// finder finds the series of a request in the cache while the request is read.
type finder struct {
	cache    *cache
	entries  []*entry // by position in the request; nil: not held
	expected *entry
}

// NewFinder returns a Finder for requests that this Appender is to store.
func (a *Appender) NewFinder() request.Finder { return &finder{cache: a.cache} }

// Reset implements request.Finder.
func (f *finder) Reset() {
	clear(f.entries)
	f.entries, f.expected = f.entries[:0], nil
}

// Expect implements request.Finder.
func (f *finder) Expect(b []byte) int {
	f.expected = nil
	before := f.before()
	if before == nil {
		return 0
	}
	e := before.follower.Load()
	// What begins with a zero are references, which b can imitate.
	if e == nil || !e.held() || len(e.raw) > len(b) || len(e.raw) == 0 || e.raw[0] == 0 ||
		string(b[:len(e.raw)]) != string(e.raw) {
		return 0
	}
	f.expected = e
	return len(e.raw)
}

// Next implements request.Finder.
func (f *finder) Next(labels []byte, expected bool) {
	e := f.expected
	if expected {
		e.touch()
	} else {
		e = f.cache.after(f.before(), labels)
	}
	f.entries = append(f.entries, e)
}

// before is the entry of the latest series, nil if there is none.
func (f *finder) before() *entry {
	if len(f.entries) == 0 {
		return nil
	}
	return f.entries[len(f.entries)-1]
}
