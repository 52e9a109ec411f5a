package index

import (
	"sync"

	"github.com/prometheus/prometheus/model/labels"
)

// known has the labels of series that were resolved lately: who asks once mostly asks again. UIDs keep their meaning,
// so what is known stays true. It is bounded by being emptied when it is full.
type known struct {
	mu     sync.RWMutex
	labels map[string]labels.Labels // by TSUID
	bytes  int
}

const (
	maxKnownBytes = 32 << 20
	knownBytes    = 64 // that an entry takes besides its TSUID and its labels' texts
)

// recall fills in the labels that are known of the series, and returns the positions of the others.
func (k *known) recall(found []Series) (missing []int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for i := range found {
		var ok bool
		if found[i].Labels, ok = k.labels[string(found[i].TSUID)]; !ok {
			missing = append(missing, i)
		}
	}
	return missing
}

// keep takes in the labels of series.
func (k *known) keep(found []Series, at []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range at {
		s := &found[i]
		if k.bytes > maxKnownBytes || k.labels == nil {
			k.labels, k.bytes = make(map[string]labels.Labels), 0
		}
		k.labels[string(s.TSUID)] = s.Labels
		k.bytes += knownBytes + len(s.TSUID) + int(s.Labels.ByteSize())
	}
}
