package query_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store/storetest"
)

// largeHolder holds one large row of each series.
type largeHolder struct {
	base   uint32
	points []byte
	asked  int
}

func (h *largeHolder) Buffered(
	_ context.Context, tsuids [][]byte, _, _ uint32, f func(i int, base uint32, points []byte),
) (warnings []error) {
	h.asked++
	for i := range tsuids {
		f(i, h.base, h.points)
	}
	return nil
}

// Rows that are held, here or by others, are copied when there is memory for them, and not before.
func TestSelect_TakesMemoryForHeldRowsBeforeItCopiesThem(t *testing.T) {
	holder := &largeHolder{base: mapping.BaseTime(start)}
	for i := range uint32(3_000) { // 36 kB
		holder.points = mapping.AppendPoint(holder.points, i, float64(i)+0.1)
	}
	stored := newDatabase(t, storetest.NewMem(), nil)
	stored.fill(t, 500, 1, 1)
	db := stored.withQuerier(stored.Store, func(c *query.Config) { c.Buffer = holder })
	const size = 18 << 20 // of all rows
	ask := func(b *budget.Budget) error {
		a := b.Open()
		defer a.Close()
		ctx := budget.NewContext(t.Context(), a)
		set, err := db.Querier.Select(ctx, start, start+4000, false, named("m"))
		if err != nil {
			return err
		}
		defer set.Close()
		for set.Next() {
			if held := b.Held(); held < size {
				t.Fatalf("%d bytes are held", held)
			}
		}
		return set.Err()
	}
	b, err := budget.New(budget.Config{Total: 128 << 20, Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(b); err != nil || holder.asked != 1 {
		t.Errorf("with memory at hand: got %v, asked %d times", err, holder.asked)
	}
	other := b.Open()
	if err := other.Take(t.Context(), 110<<20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := ask(b); !errors.Is(err, budget.ErrBusy) {
		t.Errorf("when others hold the memory: got %v", err)
	}
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > size/2 {
		t.Errorf("%d bytes were made though there was no memory for them", made)
	}
	go func() {
		for b.Waiting() == 0 {
			time.Sleep(time.Millisecond)
		}
		other.Close()
	}()
	holder.asked = 0
	if err := ask(b); err != nil || holder.asked != 2 {
		t.Errorf("when others have given it back: got %v, asked %d times", err, holder.asked)
	}
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}
