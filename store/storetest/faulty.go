package storetest

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/promtsd/promtsd/store"
)

// Verb names a method of a store.
type Verb string

// The verbs that a Faulty store counts and fails.
const (
	Tables      Verb = "Tables"
	CreateTable Verb = "CreateTable"
	Apply       Verb = "Apply"
	Get         Verb = "Get"
	Scan        Verb = "Scan"
	Increment   Verb = "Increment"
	CheckAndPut Verb = "CheckAndPut"
	DeleteRange Verb = "DeleteRange"
	Any         Verb = "" // every verb, counted together
)

// When says at what moment a call fails.
type When int

// Before, the call has no effect. After, it has its full effect, and the caller hears of an error all the same; a read
// yields all its rows, then the error. Midway, a Get or a Scan yields Fault.Rows rows, then the error (or the error at
// its end, if there are fewer); a write fails as with After.
const (
	Before When = iota
	After
	Midway
)

// Fault is one failure of a Faulty store.
type Fault struct {
	Verb Verb  // whose calls are counted
	Call int   // the call that fails, from 1; 0: every call
	When When  // Before, After or Midway
	Rows int   // with Midway, the rows yielded before the error
	Err  error // nil: an error that wraps store.ErrUnavailable
}

// FaultyStore is a store whose calls fail as its faults say. It may be used by many goroutines.
type FaultyStore struct {
	inner  store.Store
	faults []Fault

	mu    sync.Mutex
	calls map[Verb]int // guarded by mu
}

// Faulty puts faults before a store. Close is passed on and never fails by itself. A test that means to see each call
// fail once repeats itself with Call = 1, 2, ... until Calls says that there was no such call.
func Faulty(inner store.Store, faults ...Fault) *FaultyStore {
	return &FaultyStore{inner: inner, faults: faults, calls: map[Verb]int{}}
}

// Calls is how many calls of a verb there were.
func (f *FaultyStore) Calls(v Verb) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[v]
}

// next counts a call and returns the fault that hits it.
func (f *FaultyStore) next(v Verb) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[v]++
	f.calls[Any]++
	for i := range f.faults {
		fault := &f.faults[i]
		if (fault.Verb == v || fault.Verb == Any) && (fault.Call == 0 || fault.Call == f.calls[fault.Verb]) {
			return fault
		}
	}
	return nil
}

func (fault *Fault) err(v Verb) error {
	if fault.Err != nil {
		return fault.Err
	}
	return fmt.Errorf("%w: injected into %s", store.ErrUnavailable, v)
}

// write runs a call of a verb that is not a read.
func (f *FaultyStore) write(v Verb, call func() error) error {
	fault := f.next(v)
	if fault != nil && fault.When == Before {
		return fault.err(v)
	}
	if err := call(); err != nil {
		return err
	}
	if fault != nil {
		return fault.err(v)
	}
	return nil
}

// read counts a call when its iteration begins.
func (f *FaultyStore) read(v Verb, rows iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		fault := f.next(v)
		if fault == nil {
			rows(yield)
			return
		}
		left := -1
		switch fault.When {
		case Before:
			left = 0
		case Midway:
			left = fault.Rows
		}
		if left != 0 {
			for row, err := range rows {
				if !yield(row, err) || err != nil {
					return
				}
				if left--; left == 0 {
					break
				}
			}
		}
		yield(store.Row{}, fault.err(v))
	}
}

// Tables implements store.Store.
func (f *FaultyStore) Tables(ctx context.Context) (tables []store.Table, err error) {
	err = f.write(Tables, func() (err error) {
		tables, err = f.inner.Tables(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return tables, nil
}

// CreateTable implements store.Store.
func (f *FaultyStore) CreateTable(ctx context.Context, t store.Table) error {
	return f.write(CreateTable, func() error { return f.inner.CreateTable(ctx, t) })
}

// Apply implements store.Store.
func (f *FaultyStore) Apply(ctx context.Context, b *store.Batch) error {
	return f.write(Apply, func() error { return f.inner.Apply(ctx, b) })
}

// Get implements store.Store.
func (f *FaultyStore) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	return f.read(Get, f.inner.Get(ctx, g))
}

// Scan implements store.Store.
func (f *FaultyStore) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	return f.read(Scan, f.inner.Scan(ctx, s))
}

// Increment implements store.Store.
func (f *FaultyStore) Increment(ctx context.Context, c store.Coord, delta int64) (sum int64, err error) {
	err = f.write(Increment, func() (err error) {
		sum, err = f.inner.Increment(ctx, c, delta)
		return err
	})
	if err != nil {
		return 0, err
	}
	return sum, nil
}

// CheckAndPut implements store.Store.
func (f *FaultyStore) CheckAndPut(ctx context.Context, checks []store.Check) (put []bool, err error) {
	err = f.write(CheckAndPut, func() (err error) {
		put, err = f.inner.CheckAndPut(ctx, checks)
		return err
	})
	if err != nil {
		return nil, err
	}
	return put, nil
}

// DeleteRange implements store.RangeDeleter; it is ErrInvalid where the inner store does not.
func (f *FaultyStore) DeleteRange(ctx context.Context, table string, r store.Range) error {
	return f.write(DeleteRange, func() error {
		inner, ok := f.inner.(store.RangeDeleter)
		if !ok {
			return fmt.Errorf("%w: the store cannot delete ranges", store.ErrInvalid)
		}
		return inner.DeleteRange(ctx, table, r)
	})
}

// Close implements store.Store.
func (f *FaultyStore) Close() error { return f.inner.Close() }
