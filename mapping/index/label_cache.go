package index

import (
	"sync"

	"github.com/prometheus/prometheus/model/labels"
)

// labelCache has the labels of series that were resolved lately, as most queries come again. UIDs keep their meaning,
// so an entry stays true. When the cache is full it is emptied. It is safe for concurrent use; its mutex comes after
// all others.
type labelCache struct {
	mu     sync.RWMutex
	labels map[string]labels.Labels // by TSUID
	bytes  int
}

const (
	maxLabelBytes   = 32 << 20
	labelEntryBytes = 64 // of an entry, besides its TSUID and its labels' texts
)

// fill fills in the labels of the series that are in the cache, and returns the positions of the others.
func (c *labelCache) fill(found []Series) (missing []int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range found {
		var ok bool
		if found[i].Labels, ok = c.labels[string(found[i].TSUID)]; !ok {
			missing = append(missing, i)
		}
	}
	return missing
}

// add takes in the labels of the series at some positions.
func (c *labelCache) add(found []Series, at []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range at {
		s := &found[i]
		if c.bytes > maxLabelBytes || c.labels == nil {
			c.labels, c.bytes = make(map[string]labels.Labels), 0
		}
		c.labels[string(s.TSUID)] = s.Labels
		c.bytes += labelEntryBytes + len(s.TSUID) + int(s.Labels.ByteSize())
	}
}
