package seriescache

import "github.com/promtsd/promtsd/mapping/request"

// Lookup finds the series of a request, in their order. It is used for one request after the other, by one goroutine.
type Lookup struct {
	cache    *Cache
	found    *Finder // it has looked already; nil: nobody has
	previous *Entry
	numbers  []uint32 // of the request's symbols
	epoch    uint32   // of the numbers
	key      []byte
}

// Begin begins a request.
func (l *Lookup) Begin(c *Cache, req *request.Write) {
	l.cache, l.previous = c, nil
	l.found, _ = req.Finder.(*Finder)
	l.numbers, l.epoch = c.symbols.number(l.numbers, req.Symbols)
}

// End lets go of the entries, which the cache may drop.
func (l *Lookup) End() {
	if l.found != nil {
		l.found.Reset()
	}
	l.found, l.previous = nil, nil
}

// Next returns the entry of the series at a position, nil if the cache has none. The position is that of the previous
// call and 1, or 0.
func (l *Lookup) Next(req *request.Write, series int) *Entry {
	if l.found != nil {
		return l.found.entries[series]
	}
	s := &req.Series[series]
	if l.previous != nil && s.RefsFrom < s.RefsTo {
		// As Cache.after does, without making the key.
		e := l.previous.follower.Load()
		if e != nil && e.held() && isRefsKey(e.raw, l.epoch, l.numbers, req.Refs[s.RefsFrom:s.RefsTo]) {
			e.touch()
			l.previous = e
			return e
		}
	}
	l.previous = l.cache.after(l.previous, l.Key(req, series))
	return l.previous
}

// Key is what the cache knows the series at a position by: its label bytes, or its references by the numbers of their
// symbols. It is valid until the next call.
func (l *Lookup) Key(req *request.Write, series int) []byte {
	s := &req.Series[series]
	if s.RefsFrom == s.RefsTo {
		return s.Labels
	}
	l.key = appendRefsKey(l.key[:0], l.epoch, l.numbers, req.Refs[s.RefsFrom:s.RefsTo])
	return l.key
}
