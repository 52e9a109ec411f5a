package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/promtsd/promtsd/store"
)

// deleteRange deletes a range of table data, and skips the test of a store that cannot.
func (f *fixture) deleteRange(start, stop string) {
	f.Helper()
	d, ok := f.Store.(store.RangeDeleter)
	if !ok {
		f.close()
		f.Skip("the store is no RangeDeleter")
	}
	if err := d.DeleteRange(f.Context(), "data", store.Range{Start: []byte(start), Stop: []byte(stop)}); err != nil {
		f.Fatalf("DeleteRange(%q, %q): %v", start, stop, err)
	}
}

func rangeCases() []testCase {
	return []testCase{
		{"a deleted range is gone, and nothing else", func(f *fixture) {
			f.create("other", "f")
			all := []string{"a", "a\x00", "b", "bb", "c", "\xff", "\xff\xff"}
			for _, c := range []struct {
				start, stop string
				want        string
			}{
				{"", "", ""},
				{"b", "c", "a a\x00 c \xff \xff\xff"},
				{"", "b", "b bb c \xff \xff\xff"},
				{"c", "", "a a\x00 b bb"},
				{"a\x00", "a\x00\x00", "a b bb c \xff \xff\xff"},
				{"c", "b", strings.Join(all, " ")},
				{"b", "b", strings.Join(all, " ")},
				{"x", "y", strings.Join(all, " ")},
			} {
				f.apply(func(b *store.Batch) {
					for _, row := range all {
						b.Put("data", []byte(row), "f", []byte("q"), 0, nil)
						b.Put("data", []byte(row), "g", []byte(strings.Repeat("q", 300)), 0, []byte("v"))
					}
				})
				f.apply(func(b *store.Batch) { b.Put("other", []byte("b"), "f", []byte("q"), 0, nil) })
				f.deleteRange(c.start, c.stop)
				var left []string
				for _, row := range f.scan(store.Scan{}) {
					left = append(left, string(row.Key))
				}
				if got := strings.Join(left, " "); got != c.want {
					f.Errorf("after DeleteRange(%q, %q): %q, want %q", c.start, c.stop, got, c.want)
				}
				if got := f.scan(store.Scan{Table: "other"}); len(got) != 1 {
					f.Errorf("DeleteRange(%q, %q) left %d rows of another table, want 1", c.start, c.stop, len(got))
				}
			}
		}},
		{"a range is deleted whatever its timestamps, and may be filled again", func(f *fixture) {
			later := time.Now().Add(time.Hour).UnixMilli()
			put := func() {
				f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", []byte("q"), later, []byte("1")) })
			}
			put()
			f.deleteRange("r", "s")
			f.wantRows("scan", f.scan(store.Scan{}))
			if !f.check("r", "other", nil, []byte("2")) {
				f.Error("CheckAndPut in a deleted range = false, want true")
			}
			f.deleteRange("", "")
			put()
			f.wantRows("scan", f.scan(store.Scan{}), "r f:q=1")
		}},
		{"a range of a table that does not exist is an error", func(f *fixture) {
			f.deleteRange("a", "b")
			err := f.Store.(store.RangeDeleter).DeleteRange(f.Context(), "none", store.Range{})
			if !errors.Is(err, store.ErrNoTable) {
				f.Errorf("DeleteRange of table none = %v, want ErrNoTable", err)
			}
			err = f.Store.(store.RangeDeleter).DeleteRange(ended(), "data", store.Range{})
			if !errors.Is(err, ended().Err()) {
				f.Errorf("DeleteRange with a context that ended = %v", err)
			}
		}},
	}
}
