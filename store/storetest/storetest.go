// Package storetest is what every store.Store has to pass, and what tests of other packages put in a store's place.
//
// A store's test is three lines:
//
//	func TestStore(t *testing.T)      { storetest.Run(t, open) }
//	func TestModel(t *testing.T)      { storetest.Model(t, open) }
//	func BenchmarkStore(b *testing.B) { storetest.Benchmark(b, open) }
//
// where open is a func(testing.TB) store.Store that makes a store without tables, or ends the test. The suite closes
// each store it opened. It keeps to what the contract
// promises: it never puts a cell below the timestamp it has, nor one that a delete with the same or a later timestamp
// met before. A store that is a store.RangeDeleter is tested as one, too.
//
// NewMem is a store in memory, Faulty one that fails where a test says, Prefixed an empty one within another.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store"
)

// Run tests a store against the contract, a subtest for each promise.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	for _, group := range [][]testCase{tableCases(), cellCases(), scanCases(), atomicCases(), lifeCases(), rangeCases()} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				f := &fixture{TB: t, Store: open(t)}
				f.create("data", "f", "g")
				c.run(f)
				if !f.closed {
					f.close()
				}
			})
		}
	}
}

// testCase is one promise. It begins with a table "data" that has the families "f" and "g".
type testCase struct {
	name string
	run  func(*fixture)
}

// fixture is a store under test and short forms of its verbs that end the test on an error.
type fixture struct {
	testing.TB
	store.Store
	closed bool
}

func (f *fixture) close() {
	f.Helper()
	f.closed = true
	if err := f.Store.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
}

func (f *fixture) create(name string, families ...string) {
	f.Helper()
	if err := f.CreateTable(f.Context(), store.Table{Name: name, Families: families}); err != nil {
		f.Fatalf("CreateTable(%q, %q): %v", name, families, err)
	}
}

func (f *fixture) apply(fill func(b *store.Batch)) {
	f.Helper()
	var b store.Batch
	fill(&b)
	if err := f.Apply(f.Context(), &b); err != nil {
		f.Fatalf("Apply: %v", err)
	}
}

// put puts cells of family f of table data, each written "row qualifier value".
func (f *fixture) put(cells ...string) {
	f.Helper()
	f.apply(func(b *store.Batch) {
		for _, c := range cells {
			p := strings.Split(c, " ")
			b.Put("data", []byte(p[0]), "f", []byte(p[1]), 0, []byte(p[2]))
		}
	})
}

// get is Get of rows of table data.
func (f *fixture) get(rows []string, columns ...store.Column) []store.Row {
	f.Helper()
	g := store.Get{Table: "data", Columns: columns}
	for _, r := range rows {
		g.Rows = append(g.Rows, []byte(r))
	}
	return f.collect(f.Get(f.Context(), g))
}

// scan is Scan of s, of table data where s names none.
func (f *fixture) scan(s store.Scan) []store.Row {
	f.Helper()
	if s.Table == "" {
		s.Table = "data"
	}
	return f.collect(f.Scan(f.Context(), s))
}

func (f *fixture) collect(rows iter.Seq2[store.Row, error]) []store.Row {
	f.Helper()
	got, err := Collect(rows)
	if err != nil {
		f.Fatalf("read: %v", err)
	}
	return got
}

// value is the value of a cell of family f of table data.
func (f *fixture) value(row, qualifier string) (value string, ok bool) {
	f.Helper()
	for _, r := range f.get([]string{row}, store.Column{Family: "f", Qualifier: []byte(qualifier)}) {
		return string(r.Cells[0].Value), true
	}
	return "", false
}

// wantRows compares rows with their short form, as FormatRows gives it.
func (f *fixture) wantRows(what string, got []store.Row, want ...string) {
	f.Helper()
	if g := FormatRows(got); !slices.Equal(g, want) {
		f.Errorf("%s:\n got %s\nwant %s", what, strings.Join(g, "\n     "), strings.Join(want, "\n     "))
	}
}

// Collect copies all rows of a Get or a Scan, up to its first error.
func Collect(rows iter.Seq2[store.Row, error]) ([]store.Row, error) {
	var all []store.Row
	for r, err := range rows {
		if err != nil {
			return all, err
		}
		all = append(all, cloneRow(r))
	}
	return all, nil
}

func cloneRow(r store.Row) store.Row {
	c := store.Row{Key: bytes.Clone(r.Key), Cells: slices.Clone(r.Cells)}
	for i := range c.Cells {
		c.Cells[i].Qualifier = bytes.Clone(c.Cells[i].Qualifier)
		c.Cells[i].Value = bytes.Clone(c.Cells[i].Value)
	}
	return c
}

// FormatRows writes each row as `key family:qualifier=value ...`, keys and values as Go writes strings without the
// quotes. Timestamps are left out.
func FormatRows(rows []store.Row) []string {
	var lines []string
	for _, r := range rows {
		var line strings.Builder
		line.WriteString(bare(r.Key))
		for _, c := range r.Cells {
			fmt.Fprintf(&line, " %s:%s=%s", c.Family, bare(c.Qualifier), bare(c.Value))
		}
		lines = append(lines, line.String())
	}
	return lines
}

func bare(b []byte) string {
	q := fmt.Sprintf("%+q", b)
	return q[1 : len(q)-1]
}

// drain reads to the end and returns the number of rows and the error.
func drain(rows iter.Seq2[store.Row, error]) (n int, err error) {
	for _, err := range rows {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
