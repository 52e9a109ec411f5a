package index_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
)

// counting counts the scans of a store that run at a time.
type counting struct {
	store.Store
	running, most atomic.Int32
}

func (c *counting) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		n := c.running.Add(1)
		defer c.running.Add(-1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		time.Sleep(time.Millisecond)
		c.Store.Scan(ctx, s)(yield)
	}
}

// Those who go through all series of the store leave processors to others.
func TestReader_ReadsAllSeriesAFewAtATime(t *testing.T) {
	db := newDatabase(t, nil)
	for i := range 10 {
		db.write(db.tsuid(fmt.Sprint("m", i), "k", fmt.Sprint(i)), noon)
	}
	st := &counting{Store: db.store}
	db.store = st
	r := db.readerOn(nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if values, _, err := r.LabelValues(t.Context(), "k", noon, noon, index.Limits{}); err != nil || len(values) != 10 {
				t.Errorf("got %q, %v", values, err)
			}
		})
	}
	all.Wait()
	if most := int(st.most.Load()); most > max(1, runtime.GOMAXPROCS(0)/2) {
		t.Errorf("%d went through all series at a time", most)
	}
}
