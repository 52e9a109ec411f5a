package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/promtsd/promtsd/store"
)

func lifeCases() []testCase {
	return []testCase{
		{"a context that has ended ends every call", func(f *fixture) {
			f.put("r q 1")
			f.wantErrors("with an ended context", ended(), context.Canceled)
			f.wantRows("scan", f.scan(store.Scan{}), "r f:q=1")
		}},
		{"a context that ends stops a scan", func(f *fixture) {
			const rows = 5000
			f.apply(func(b *store.Batch) {
				for i := range rows {
					b.Put("data", []byte(fmt.Sprintf("%05d", i)), "f", nil, 0, nil)
				}
			})
			ctx, cancel := context.WithCancel(f.Context())
			defer cancel()
			n := 0
			var last error
			for _, err := range f.Scan(ctx, store.Scan{Table: "data"}) {
				if err != nil {
					last = err
					continue
				}
				if n++; n == 10 {
					cancel()
				}
			}
			if !errors.Is(last, context.Canceled) || n == rows {
				f.Errorf("scan ended after %d rows with %v, want context.Canceled before all %d", n, last, rows)
			}
		}},
		{"a context that ends stops a scan that rejects every row", func(f *fixture) {
			const rows = 5000
			f.apply(func(b *store.Batch) {
				for i := range rows {
					b.Put("data", []byte(fmt.Sprintf("%05d", i)), "f", nil, 0, nil)
				}
			})
			ctx, cancel := context.WithCancel(f.Context())
			defer cancel()
			n := 0
			_, err := drain(f.Scan(ctx, store.Scan{Table: "data", Filter: store.RowFilter{Match: func([]byte) bool {
				if n++; n == 10 {
					cancel()
				}
				return false
			}}}))
			if !errors.Is(err, context.Canceled) || n == rows {
				f.Errorf("scan ended after %d rejected rows with %v, want context.Canceled before all %d", n, err, rows)
			}
		}},
		{"an iteration may end early, and be made again", func(f *fixture) {
			f.put("a q 1", "b q 2", "c q 3")
			scan := f.Scan(f.Context(), store.Scan{Table: "data"})
			get := f.Get(f.Context(), store.Get{Table: "data", Rows: [][]byte{[]byte("a"), []byte("b")}})
			for range 3 {
				for row, err := range scan {
					if err != nil || string(row.Key) != "a" {
						f.Errorf("first row %q, %v", row.Key, err)
					}
					break
				}
				for row, err := range get {
					if err != nil || string(row.Key) != "a" {
						f.Errorf("first row %q, %v", row.Key, err)
					}
					break
				}
			}
			f.put("0 q 0")
			f.wantRows("scan made again", f.collect(scan), "0 f:q=0", "a f:q=1", "b f:q=2", "c f:q=3")
		}},
		{"calls may be made from within an iteration", func(f *fixture) {
			f.put("a q 1", "b q 2", "c q 3")
			n := 0
			for row, err := range f.Scan(f.Context(), store.Scan{Table: "data", Columns: []store.Column{{Family: "f"}}}) {
				if err != nil {
					f.Fatal(err)
				}
				key := string(row.Key)
				f.wantRows("get", f.get([]string{key}, store.Column{Family: "f"}), FormatRows([]store.Row{row})...)
				f.apply(func(b *store.Batch) { b.Put("data", row.Key, "g", row.Cells[0].Qualifier, 0, row.Cells[0].Value) })
				f.increment("count", "n", 1)
				f.check(key, "seen", nil, []byte("1"))
				for _, err := range f.Scan(f.Context(), store.Scan{Table: "data", Limit: 1}) {
					if err != nil {
						f.Fatal(err)
					}
				}
				if n++; n > 100 {
					f.Fatal("the scan does not end")
				}
			}
			f.wantRows("family g", f.scan(store.Scan{Columns: []store.Column{{Family: "g"}}}), "a g:q=1", "b g:q=2", "c g:q=3")
		}},
		{"a row shows a batch whole while writers write", func(f *fixture) {
			f.apply(pairs(0))
			stop := make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() {
				for n := 1; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					f.apply(pairs(n))
				}
			})
			race(func(int) {
				for range rounds {
					for row, err := range f.Scan(f.Context(), store.Scan{Table: "data"}) {
						if err != nil {
							f.Errorf("scan: %v", err)
							return
						}
						for _, c := range row.Cells {
							if string(c.Value) != string(row.Cells[0].Value) {
								f.Errorf("row %q shows half a batch: %q", row.Key, FormatRows([]store.Row{row}))
								return
							}
						}
					}
				}
			})
			close(stop)
			writer.Wait()
		}},
		{"what was applied is seen by what starts afterwards", func(f *fixture) {
			race(func(racer int) {
				for n := range rounds {
					row := fmt.Sprint("r", racer)
					f.put(row + " q " + strconv.Itoa(n))
					if got, ok := f.value(row, "q"); !ok || got != strconv.Itoa(n) {
						f.Errorf("get after a put of %d = %q, %t", n, got, ok)
					}
				}
			})
		}},
		{"tables are made by many at once", func(f *fixture) {
			race(func(racer int) {
				f.create("shared", "x", "y")
				f.create("own"+strconv.Itoa(racer), "x")
				f.apply(func(b *store.Batch) { b.Put("shared", []byte{'a' + byte(racer)}, "y", nil, 0, nil) })
			})
			tables, err := f.Tables(f.Context())
			if err != nil || len(tables) != racers+2 {
				f.Errorf("Tables() = %v, %v, want %d", tables, err, racers+2)
			}
			if got := f.scan(store.Scan{Table: "shared"}); len(got) != racers {
				f.Errorf("%d rows in the shared table, want %d", len(got), racers)
			}
		}},
		{"every call after Close is refused", func(f *fixture) {
			f.close()
			f.wantErrors("after Close", f.Context(), store.ErrClosed)
		}},
		{"Close waits for calls under way", func(f *fixture) {
			f.put("a q 1", "b q 2", "c q 3")
			closed := make(chan struct{})
			n := 0
			for _, err := range f.Scan(f.Context(), store.Scan{Table: "data"}) {
				if err != nil {
					f.Fatal(err)
				}
				if n++; n == 1 {
					go func() {
						defer close(closed)
						f.close()
					}()
				}
				select {
				case <-closed:
					f.Error("Close returned during a scan")
				default:
				}
			}
			<-closed
			if n != 3 {
				f.Errorf("the scan yielded %d rows, want 3", n)
			}
		}},
	}
}

// pairs fills a batch that writes n into four cells of each of three rows.
func pairs(n int) func(*store.Batch) {
	return func(b *store.Batch) {
		value := []byte(strconv.Itoa(n))
		for _, row := range []string{"a", "b", "c"} {
			for _, q := range []string{"1", "2"} {
				b.Put("data", []byte(row), "f", []byte(q), 0, value)
				b.Put("data", []byte(row), "g", []byte(q), 0, value)
			}
		}
	}
}

// wantErrors makes one call of each verb and compares its error.
func (f *fixture) wantErrors(when string, ctx context.Context, want error) {
	f.Helper()
	var b store.Batch
	b.Put("data", []byte("x"), "f", nil, 0, nil)
	_, tablesErr := f.Store.Tables(ctx)
	_, getErr := drain(f.Store.Get(ctx, store.Get{Table: "data", Rows: [][]byte{[]byte("x")}}))
	_, scanErr := drain(f.Store.Scan(ctx, store.Scan{Table: "data"}))
	_, incrementErr := f.Increment(ctx, coord("x", "q"), 1)
	_, checkErr := f.CheckAndPut(ctx, []store.Check{{Coord: coord("x", "q")}})
	for _, c := range []struct {
		verb Verb
		err  error
	}{
		{Tables, tablesErr}, {Get, getErr}, {Scan, scanErr}, {Increment, incrementErr}, {CheckAndPut, checkErr},
		{CreateTable, f.CreateTable(ctx, store.Table{Name: "new", Families: []string{"f"}})}, {Apply, f.Apply(ctx, &b)},
	} {
		if !errors.Is(c.err, want) {
			f.Errorf("%s %s = %v, want %v", c.verb, when, c.err, want)
		}
	}
}
