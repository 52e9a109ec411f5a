package uid_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// uidTable is the table that the tests use.
const uidTable = "tsdb-uid"

// address is that of a cell in it.
type address struct{ row, family, qualifier string }

// fake is a store in memory with a UID table.
type fake struct {
	*storetest.Mem
}

func newFake() *fake {
	f := &fake{storetest.NewMem()}
	table := store.Table{Name: uidTable, Families: []string{"id", "name"}}
	if err := f.CreateTable(context.Background(), table); err != nil {
		panic(err)
	}
	return f
}

// put sets a cell.
func (f *fake) put(row, family, qualifier, value string) {
	var b store.Batch
	b.Put(uidTable, []byte(row), family, []byte(qualifier), 1, []byte(value))
	if err := f.Apply(context.Background(), &b); err != nil {
		panic(err)
	}
}

// all is every cell.
func (f *fake) all() map[address]string {
	cells := make(map[address]string)
	for row, err := range f.Scan(context.Background(), store.Scan{Table: uidTable}) {
		if err != nil {
			panic(err)
		}
		for _, c := range row.Cells {
			cells[address{string(row.Key), c.Family, string(c.Qualifier)}] = string(c.Value)
		}
	}
	return cells
}

// get is the value of a cell, empty if it is absent.
func (f *fake) get(row, family, qualifier string) string {
	return f.all()[address{row, family, qualifier}]
}

// counter is the value of a counter cell, 0 if it is absent.
func (f *fake) counter(qualifier string) int64 {
	value := f.get("\x00", "id", qualifier)
	if value == "" {
		return 0
	}
	return int64(binary.BigEndian.Uint64([]byte(value)))
}

// format is cells, sorted, one a line.
func format(cells map[address]string) string {
	var lines []string
	for a, value := range cells {
		lines = append(lines, fmt.Sprintf("%q %s:%s = %q", a.row, a.family, a.qualifier, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// tapped is a store whose calls a test can count, hold up and fail.
type tapped struct {
	store.Store

	// before and after, where not nil, are called around each call. An error of before is returned in place of the
	// call, one of after in place of its result.
	before, after func(ctx context.Context, c call) error
	// half makes a CheckAndPut that before fails do the first half of its checks.
	half bool
}

// call is one call of a tapped store.
type call struct {
	verb   string
	family string
}

var errFault = fmt.Errorf("%w: injected fault", store.ErrUnavailable)

func (t *tapped) tap(ctx context.Context, f func(context.Context, call) error, c call) error {
	if f == nil {
		return nil
	}
	return f(ctx, c)
}

func (t *tapped) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	c := call{"get", g.Columns[0].Family}
	return func(yield func(store.Row, error) bool) {
		if err := t.tap(ctx, t.before, c); err != nil {
			yield(store.Row{}, err)
			return
		}
		for row, err := range t.Store.Get(ctx, g) {
			if !yield(row, err) {
				return
			}
		}
		if err := t.tap(ctx, t.after, c); err != nil {
			yield(store.Row{}, err)
		}
	}
}

func (t *tapped) Increment(ctx context.Context, at store.Coord, delta int64) (int64, error) {
	c := call{"increment", at.Family}
	if err := t.tap(ctx, t.before, c); err != nil {
		return 0, err
	}
	sum, err := t.Store.Increment(ctx, at, delta)
	return sum, errors.Join(err, t.tap(ctx, t.after, c))
}

func (t *tapped) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	c := call{"check", checks[0].Family}
	if err := t.tap(ctx, t.before, c); err != nil {
		if t.half {
			_, _ = t.Store.CheckAndPut(ctx, checks[:(len(checks)+1)/2])
		}
		return nil, err
	}
	done, err := t.Store.CheckAndPut(ctx, checks)
	if err := errors.Join(err, t.tap(ctx, t.after, c)); err != nil {
		return nil, err
	}
	return done, nil
}
