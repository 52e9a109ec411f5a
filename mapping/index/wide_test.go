package index_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	m, _ := db.memory(1)
	st := &counting{Store: db.store}
	db.store = st
	r := db.readerOn(m)
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

// Who would have to wait for very long is told so.
func TestReader_WaitsForOthersABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase(t, nil)
		db.write(db.tsuid("m", "k", "v"), noon)
		db.write(db.tsuid("m", "k", "w"), noon)
		m, _ := db.memory(1)
		db.store = hanging{db.store}
		r := db.readerOn(m)
		ctx, leave := context.WithCancel(t.Context())
		ask := func() error {
			_, _, err := r.LabelValues(ctx, "k", noon, noon, index.Limits{})
			return err
		}
		var all sync.WaitGroup
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			all.Go(func() {
				if err := ask(); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want it to hang until its client leaves", err)
				}
			})
		}
		synctest.Wait()
		if err := ask(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "--index.max-series") {
			t.Errorf("got %v, want an error that names the limit", err)
		}
		leave()
		all.Wait()
	})
}

// hanging is a store that does not answer scans.
type hanging struct{ store.Store }

func (hanging) Scan(ctx context.Context, _ store.Scan) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		<-ctx.Done()
		yield(store.Row{}, ctx.Err())
	}
}
