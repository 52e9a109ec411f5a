package uid_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// rotten is a store of which some rows cannot be read.
type rotten struct {
	store.Store
	rows string // separated by spaces
	gets int
}

func (r *rotten) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	r.gets++
	for _, row := range g.Rows {
		for bad := range strings.FieldsSeq(r.rows) {
			if string(row) == bad {
				return func(yield func(store.Row, error) bool) {
					yield(store.Row{}, fmt.Errorf("%w: block 7", store.ErrCorrupt))
				}
			}
		}
	}
	return r.Store.Get(ctx, g)
}

// A part of the table that cannot be read costs the names in it, and no other.
func TestAssign_UnreadableRowsCostTheirNamesOnly(t *testing.T) {
	st := &rotten{Store: newFake(), rows: "name3 name77"}
	r := newRegistry(t, config(st))
	results, err := r.Assign(t.Context(), numbered(metric, 100))
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		damaged := i == 3 || i == 77
		if damaged != errors.Is(result.Err, mapping.ErrCorrupt) || damaged &&
			!strings.Contains(result.Err.Error(), fmt.Sprintf(`"name%d"`, i)) {
			t.Errorf("name%d: got %v", i, result.Err)
		}
	}
	if st.gets > 32 {
		t.Errorf("%d reads were made, want a few for each row that cannot be read", st.gets)
	}
	st.rows = ""
	assign(t, r, metric("name3"))
}

// A counter that cannot be used costs new names of its kind.
func TestAssign_DamagedCounterCostsNewNamesOfItsKindOnly(t *testing.T) {
	st := newFake()
	r := newRegistry(t, config(st))
	known := assign(t, r, tagk("known"))
	st.put("\x00", "id", "tagv", "abc") // of 3 bytes
	fresh := newRegistry(t, config(st))
	results, err := fresh.Assign(t.Context(), []uid.Name{tagk("known"), tagk("new"), tagv("new")})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].UID != known[0] || results[1].Err != nil {
		t.Errorf("names of another kind: %v", results[:2])
	}
	if err := results[2].Err; !errors.Is(err, mapping.ErrCorrupt) || !strings.Contains(err.Error(), "repair the counter") {
		t.Errorf("the new name: got %v, want ErrCorrupt that names the counter", err)
	}
}
