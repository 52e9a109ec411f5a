package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/promtsd/promtsd/store"
)

func tableCases() []testCase {
	return []testCase{
		{"tables are listed by name", func(f *fixture) {
			f.create("b", "x")
			f.create("a", "x", "y", "z")
			got, err := f.Tables(f.Context())
			want := []store.Table{
				{Name: "a", Families: []string{"x", "y", "z"}}, {Name: "b", Families: []string{"x"}},
				{Name: "data", Families: []string{"f", "g"}},
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				f.Errorf("Tables() = %v, %v, want %v", got, err, want)
			}
		}},
		{"making a table again changes nothing", func(f *fixture) {
			f.put("r q 1")
			f.create("data", "f", "g")
			f.wantRows("scan", f.scan(store.Scan{}), "r f:q=1")
		}},
		{"a table with other families is refused", func(f *fixture) {
			for _, families := range [][]string{{"f"}, {"f", "h"}, {"f", "g", "h"}, {}} {
				err := f.CreateTable(f.Context(), store.Table{Name: "data", Families: families})
				if !errors.Is(err, store.ErrInvalid) {
					f.Errorf("CreateTable(data, %q) = %v, want ErrInvalid", families, err)
				}
			}
		}},
		{"a table or family that does not exist is an error", func(f *fixture) {
			ctx, key := f.Context(), []byte("r")
			for _, at := range [][2]string{{"none", "f"}, {"data", "h"}} {
				table, family := at[0], at[1]
				column := []store.Column{{Family: family}}
				coord := store.Coord{Table: table, Row: key, Family: family}
				want := func(verb string, err error) {
					if !errors.Is(err, store.ErrNoTable) {
						f.Errorf("%s of table %s, family %s = %v, want ErrNoTable", verb, table, family, err)
					}
				}
				var put, del store.Batch
				put.Put("data", key, "f", key, 0, key)
				put.Put(table, key, family, key, 0, key)
				want("Apply", f.Apply(ctx, &put))
				del.Delete(table, key, family, key, 0)
				want("Apply", f.Apply(ctx, &del))
				_, err := drain(f.Get(ctx, store.Get{Table: table, Rows: [][]byte{key}, Columns: column}))
				want("Get", err)
				_, err = drain(f.Scan(ctx, store.Scan{Table: table, Columns: column}))
				want("Scan", err)
				_, err = f.Increment(ctx, coord, 1)
				want("Increment", err)
				_, err = f.CheckAndPut(ctx, []store.Check{{Coord: coord}})
				want("CheckAndPut", err)
			}
		}},
		{"tables do not mix", func(f *fixture) {
			f.create("other", "f")
			f.put("r q 1")
			f.apply(func(b *store.Batch) {
				b.Put("other", []byte("r"), "f", []byte("q"), 0, []byte("2"))
				b.Put("other", []byte("\xff\xff"), "f", []byte("q"), 0, []byte("3"))
			})
			f.wantRows("data", f.scan(store.Scan{}), "r f:q=1")
			f.wantRows("other", f.scan(store.Scan{Table: "other"}), "r f:q=2", `\xff\xff f:q=3`)
		}},
	}
}

// awkwardKeys are byte strings in their order that are easy to put in another.
var awkwardKeys = []string{
	"\x00", "\x00\x00", "\x00\x00\x00", "\x00\x01", "\x00\xff", "\x01", "\x01\x00", "\x01\x01", "a", "a\x00", "a\x00\x00",
	"a\x00\x00\x00\x01", "a\x00b", "a\x01", "a\x02", "aa", "a\xff", "a\xff\x00", "b", "\xfe", "\xff",
	"\xff\x00", "\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff",
}

func cellCases() []testCase {
	return []testCase{
		{"rows are in byte order", func(f *fixture) {
			f.apply(func(b *store.Batch) {
				for i := range awkwardKeys {
					b.Put("data", []byte(awkwardKeys[len(awkwardKeys)-1-i]), "f", []byte("q"), 0, nil)
				}
			})
			var want []string
			for _, k := range awkwardKeys {
				want = append(want, bare([]byte(k))+" f:q=")
			}
			f.wantRows("scan", f.scan(store.Scan{}), want...)
			f.wantRows("get", f.get(awkwardKeys), want...)
		}},
		{"cells are in the order of family, then qualifier bytes", func(f *fixture) {
			qualifiers := append([]string{""}, awkwardKeys...)
			for _, n := range []int{252, 253, 254, 255, 256, 300, 70000} {
				qualifiers = append(qualifiers, strings.Repeat("\xff", n))
			}
			f.apply(func(b *store.Batch) {
				for i := range qualifiers {
					q := []byte(qualifiers[len(qualifiers)-1-i])
					b.Put("data", []byte("r"), "g", q, 0, []byte("2"))
					b.Put("data", []byte("r"), "f", q, 0, []byte("1"))
				}
			})
			want := "r"
			for _, cell := range [][2]string{{"f", "1"}, {"g", "2"}} {
				for _, q := range qualifiers {
					want += fmt.Sprintf(" %s:%s=%s", cell[0], bare([]byte(q)), cell[1])
				}
			}
			f.wantRows("scan", f.scan(store.Scan{}), want)
		}},
		{"long qualifiers that begin alike are in byte order", func(f *fixture) {
			var qualifiers []string
			for _, head := range []string{"qqqqqqqq", "qqqqqqqqq", strings.Repeat("q", 16)} {
				for _, tail := range []string{"", "\x00", "a", "a\x00\x00\x00\x00\x00\x00\x00\x00", "ab", "b", "\xff", "\xffz"} {
					qualifiers = append(qualifiers, head+tail, head+strings.Repeat("m", 9)+tail)
				}
			}
			slices.Sort(qualifiers)
			qualifiers = slices.Compact(qualifiers)
			value := func(q string) string { return strconv.Itoa(len(q)) }
			want := "r"
			f.apply(func(b *store.Batch) {
				for _, q := range qualifiers {
					want += " f:" + bare([]byte(q)) + "=" + value(q)
					b.Put("data", []byte("r"), "f", []byte(q), 0, []byte("old"))
					b.Put("data", []byte("r"), "f", []byte(q), 0, []byte(value(q)))
				}
			})
			f.wantRows("scan", f.scan(store.Scan{}), want)
			for _, q := range qualifiers {
				if got, ok := f.value("r", q); got != value(q) {
					f.Errorf("the cell %q holds %q, %t, want %s", q, got, ok, value(q))
				}
				if !f.check("r", q, []byte(value(q)), []byte("new")) || f.check("r", q, nil, nil) {
					f.Errorf("checks of %q do not see what it holds", q)
				}
				f.apply(func(b *store.Batch) { b.Delete("data", []byte("r"), "f", []byte(q), 0) })
				if got, ok := f.value("r", q); ok {
					f.Errorf("the deleted cell %q holds %q", q, got)
				}
				if sum := f.increment("r", q, 5); sum != 5 {
					f.Errorf("Increment of the deleted cell %q = %d, want 5", q, sum)
				}
			}
		}},
		{"the longest row key and large values are kept", func(f *fixture) {
			row, value := strings.Repeat("r", store.MaxRow), strings.Repeat("v", 3<<20)
			f.put(row+" q "+value, row[1:]+" q 1")
			if got, ok := f.value(row, "q"); !ok || got != value {
				f.Errorf("value of %d bytes, %t, want %d", len(got), ok, len(value))
			}
		}},
		{"empty qualifiers and values are cells", func(f *fixture) {
			f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", nil, 0, nil) })
			f.wantRows("get", f.get([]string{"r"}), "r f:=")
			f.wantRows("get the empty qualifier", f.get([]string{"r"}, store.Column{Family: "f", Qualifier: []byte{}}), "r f:=")
		}},
		{"a later put replaces", func(f *fixture) {
			f.put("r q 1")
			f.put("r q 2", "r q 3")
			f.wantRows("get", f.get([]string{"r"}), "r f:q=3")
		}},
		{"timestamps are kept", func(f *fixture) {
			before := time.Now().Add(-time.Minute).UnixMilli()
			f.apply(func(b *store.Batch) {
				for i, ts := range []int64{1, 255, 256, 1500000000123, 9223372036854} {
					b.Put("data", []byte("r"), "f", []byte{byte(i)}, ts, []byte("v"))
				}
				b.Put("data", []byte("r"), "f", []byte{5}, 0, []byte("v"))
			})
			cells := f.get([]string{"r"})[0].Cells
			for i, want := range []int64{1, 255, 256, 1500000000123, 9223372036854} {
				if cells[i].Timestamp != want {
					f.Errorf("timestamp %d, want %d", cells[i].Timestamp, want)
				}
			}
			if now := cells[5].Timestamp; now < before || now > time.Now().Add(time.Minute).UnixMilli() {
				f.Errorf("timestamp of a put without one is %d, want about now, %d", now, time.Now().UnixMilli())
			}
		}},
		{"an equal timestamp replaces", func(f *fixture) {
			for _, v := range []string{"1", "2"} {
				f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", []byte("q"), 77, []byte(v)) })
			}
			f.wantRows("get", f.get([]string{"r"}), "r f:q=2")
		}},
		{"a delete removes what is not newer", func(f *fixture) {
			f.apply(func(b *store.Batch) {
				for _, q := range []string{"older", "equal", "newer", "other"} {
					b.Put("data", []byte("r"), "f", []byte(q), 100, []byte("1"))
				}
				b.Put("data", []byte("s"), "f", []byte("q"), 100, []byte("1"))
			})
			f.apply(func(b *store.Batch) {
				b.Delete("data", []byte("r"), "f", []byte("older"), 101)
				b.Delete("data", []byte("r"), "f", []byte("equal"), 100)
				b.Delete("data", []byte("r"), "f", []byte("newer"), 99)
				b.Delete("data", []byte("r"), "f", []byte("absent"), 101)
				b.Delete("data", []byte("r"), "g", []byte("other"), 101)
				b.Delete("data", []byte("s"), "f", []byte("q"), 0)
			})
			f.wantRows("scan", f.scan(store.Scan{}), "r f:newer=1 f:other=1")
		}},
		{"a batch keeps its order within a row", func(f *fixture) {
			f.apply(func(b *store.Batch) {
				b.Put("data", []byte("r"), "f", []byte("a"), 10, []byte("1"))
				b.Delete("data", []byte("r"), "f", []byte("a"), 20)
				b.Put("data", []byte("r"), "f", []byte("b"), 10, []byte("1"))
				b.Delete("data", []byte("r"), "f", []byte("b"), 20)
				b.Put("data", []byte("r"), "f", []byte("b"), 30, []byte("2"))
			})
			f.wantRows("scan", f.scan(store.Scan{}), "r f:b=2")
		}},
		{"a batch may be applied again", func(f *fixture) {
			for range 2 {
				f.apply(func(b *store.Batch) {
					b.Put("data", []byte("r"), "f", []byte("a"), 10, []byte("1"))
					b.Delete("data", []byte("r"), "f", []byte("b"), 10)
				})
			}
			f.wantRows("scan", f.scan(store.Scan{}), "r f:a=1")
		}},
		{"a batch with a bad part is refused whole", func(f *fixture) {
			long := make([]byte, store.MaxRow+1)
			for name, bad := range map[string]func(b *store.Batch){
				"empty row":    func(b *store.Batch) { b.Put("data", nil, "f", nil, 0, nil) },
				"long row":     func(b *store.Batch) { b.Put("data", long, "f", nil, 0, nil) },
				"empty family": func(b *store.Batch) { b.Delete("data", []byte("r"), "", nil, 0) },
			} {
				var b store.Batch
				b.Put("data", []byte("good"), "f", []byte("q"), 0, nil)
				bad(&b)
				if err := f.Apply(f.Context(), &b); !errors.Is(err, store.ErrInvalid) {
					f.Errorf("Apply with %s = %v, want ErrInvalid", name, err)
				}
			}
			f.wantRows("scan", f.scan(store.Scan{}))
		}},
		{"an empty batch is applied", func(f *fixture) { f.apply(func(*store.Batch) {}) }},
		{"slices passed in may be reused", func(f *fixture) {
			row, q, value := []byte("r"), []byte("q"), []byte("v")
			f.apply(func(b *store.Batch) { b.Put("data", row, "f", q, 0, value) })
			coord := store.Coord{Table: "data", Row: row, Family: "g", Qualifier: q}
			if _, err := f.CheckAndPut(f.Context(), []store.Check{{Coord: coord, Value: value}}); err != nil {
				f.Fatal(err)
			}
			for _, b := range [][]byte{row, q, value} {
				copy(b, bytes.Repeat([]byte{'x'}, len(b)))
			}
			f.wantRows("scan", f.scan(store.Scan{}), "r f:q=v g:q=v")
		}},
		{"get leaves out what is missing", func(f *fixture) {
			f.put("b q 1", "d q 2", "dd q 3")
			f.wantRows("get", f.get([]string{"a", "b", "b\x00", "c", "d", "d\x00", "e"}), "b f:q=1", "d f:q=2")
			f.wantRows("get nothing", f.get(nil))
			f.wantRows("get of another family", f.get([]string{"b"}, store.Column{Family: "g"}))
		}},
		{"get of many rows", func(f *fixture) {
			var keys, want []string
			f.apply(func(b *store.Batch) {
				for i := range 3000 {
					k := fmt.Sprintf("row%06d", i)
					keys = append(keys, k)
					if i%3 == 0 {
						b.Put("data", []byte(k), "f", []byte("q"), 0, []byte(k))
						want = append(want, k+" f:q="+k)
					}
				}
			})
			f.wantRows("get", f.get(keys), want...)
		}},
		{"get refuses rows that do not ascend, empty ones and long ones", func(f *fixture) {
			for _, rows := range [][]string{{"b", "a"}, {"a", "a"}, {""}, {strings.Repeat("r", store.MaxRow+1)}} {
				g := store.Get{Table: "data"}
				for _, r := range rows {
					g.Rows = append(g.Rows, []byte(r))
				}
				if _, err := drain(f.Get(f.Context(), g)); !errors.Is(err, store.ErrInvalid) {
					f.Errorf("Get(%.20q) = %v, want ErrInvalid", rows, err)
				}
			}
		}},
	}
}
