package uid

import (
	"sync"

	"github.com/promtsd/promtsd/mapping"
)

// kept are the ids that assignments took from the counters and that no name got, because a call of the store failed.
// The next assignments take them before others, so that a store that fails for hours does not use the ids up.
type kept struct {
	mu   sync.Mutex
	free [kinds][]mapping.UID // their reverse cells have certainly not been written
	// the reverse cell may have been, or may yet be, written for that name: no other gets the id
	named     map[nameKey]mapping.UID
	bytes     int         // of named, about
	uncertain [kinds]bool // the latest Increment may have counted or not
}

const (
	maxFree       = 1 << 16  // of each kind
	maxNamedBytes = 16 << 20 // names included
	namedBytes    = 100      // of an entry of named, without its name
)

// take gives a claim an id, if there is one for it.
func (k *kept) take(c *claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.id = k.named[c.key]; c.id != 0 {
		k.forget(c.key)
		c.written = true
	} else if free := k.free[c.key.kind]; len(free) > 0 {
		c.id = free[len(free)-1]
		k.free[c.key.kind] = free[:len(free)-1]
	}
}

// forget lets go of what is kept for a name. mu must be locked.
func (k *kept) forget(name nameKey) {
	if _, ok := k.named[name]; ok {
		k.bytes -= len(name.text) + namedBytes
		delete(k.named, name)
	}
}

// resolved notes that a name has a UID.
func (k *kept) resolved(name nameKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(name)
}

// giveBack keeps the ids that claims did not come to use. Those of names that got another UID meanwhile are lost where
// their reverse cells may have been written; so are those that are too many.
func (k *kept) giveBack(claims []*claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range claims {
		switch {
		case c.id == 0 || c.id == c.result.UID:
		case !c.written:
			k.free[c.key.kind] = appendFree(k.free[c.key.kind], c.id)
		case !c.resolved():
			for name := range k.named { // any: it is not known which come again
				if k.bytes+len(c.key.text)+namedBytes <= maxNamedBytes {
					break
				}
				k.forget(name)
			}
			if k.named == nil {
				k.named = make(map[nameKey]mapping.UID)
			}
			k.named[c.key] = c.id
			k.bytes += len(c.key.text) + namedBytes
		}
	}
}

// add keeps ids of a kind of which nothing was written.
func (k *kept) add(kind mapping.Kind, ids []mapping.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free[kind] = appendFree(k.free[kind], ids...)
}

func appendFree(free []mapping.UID, ids ...mapping.UID) []mapping.UID {
	return append(free, ids[:min(len(ids), maxFree-len(free))]...)
}

func (k *kept) isUncertain(kind mapping.Kind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.uncertain[kind]
}

func (k *kept) setUncertain(kind mapping.Kind, uncertain bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uncertain[kind] = uncertain
}
