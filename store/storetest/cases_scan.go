package storetest

import (
	"errors"
	"fmt"

	"github.com/promtsd/promtsd/store"
)

func scanCases() []testCase {
	return []testCase{
		{"ranges bound a scan", func(f *fixture) {
			f.put("a q 1", "a\x00 q 2", "b q 3", "c q 4", "d q 5", "\xff q 6")
			all := []string{"a f:q=1", `a\x00 f:q=2`, "b f:q=3", "c f:q=4", "d f:q=5", `\xff f:q=6`}
			for _, c := range []struct {
				ranges string // start,stop;start,stop
				want   []string
			}{
				{",", all},
				{"a,", all},
				{",a", nil},
				{"a,a", nil},
				{"b,a", nil},
				{"a,a\x00", all[:1]},
				{"a\x00,b", all[1:2]},
				{",c", all[:3]},
				{"c,", all[3:]},
				{"b,d", all[2:4]},
				{"bb,cc", all[3:4]},
				{"e,", all[5:]},
				{"\xff,", all[5:]},
				{"\xff\x00,", nil},
				{",b;c,", []string{all[0], all[1], all[3], all[4], all[5]}},
				{"a,a\x00;b,c;\xff,", []string{all[0], all[2], all[5]}},
				{"a,b;b,c;c,d", all[:4]},
				{"0,1;bb,bc;b\xff,c\x00;x,y", all[3:4]},
			} {
				f.wantRows(fmt.Sprintf("ranges %q", c.ranges), f.scan(store.Scan{Ranges: parseRanges(c.ranges)}), c.want...)
			}
		}},
		{"ranges that do not ascend are refused", func(f *fixture) {
			for _, ranges := range []string{"b,c;a,b", "a,c;b,d", "a,;b,"} {
				_, err := drain(f.Scan(f.Context(), store.Scan{Table: "data", Ranges: parseRanges(ranges)}))
				if !errors.Is(err, store.ErrInvalid) {
					f.Errorf("Scan of ranges %q = %v, want ErrInvalid", ranges, err)
				}
			}
		}},
		{"columns are selected", func(f *fixture) {
			f.apply(func(b *store.Batch) {
				for _, row := range []string{"r", "s"} {
					for _, family := range []string{"f", "g"} {
						for _, q := range []string{"", "a", "ab", "b"} {
							if row == "r" || family == "g" {
								b.Put("data", []byte(row), family, []byte(q), 0, []byte("1"))
							}
						}
					}
				}
			})
			col := func(family, qualifier string) store.Column {
				return store.Column{Family: family, Qualifier: []byte(qualifier)}
			}
			for _, c := range []struct {
				columns []store.Column
				want    []string
			}{
				{[]store.Column{{Family: "f"}}, []string{"r f:=1 f:a=1 f:ab=1 f:b=1"}},
				{[]store.Column{col("f", "a")}, []string{"r f:a=1"}},
				{[]store.Column{col("f", "")}, []string{"r f:=1"}},
				{[]store.Column{col("g", "b"), col("f", "ab")}, []string{"r f:ab=1 g:b=1", "s g:b=1"}},
				{[]store.Column{col("f", "a"), {Family: "g"}}, []string{
					"r f:a=1 g:=1 g:a=1 g:ab=1 g:b=1", "s g:=1 g:a=1 g:ab=1 g:b=1",
				}},
				{[]store.Column{{Family: "g"}, col("g", "a")}, []string{"r g:=1 g:a=1 g:ab=1 g:b=1", "s g:=1 g:a=1 g:ab=1 g:b=1"}},
				{[]store.Column{col("f", "none")}, nil},
			} {
				what := fmt.Sprintf("columns %v", c.columns)
				f.wantRows("scan "+what, f.scan(store.Scan{Columns: c.columns}), c.want...)
				f.wantRows("get "+what, f.get([]string{"r", "s"}, c.columns...), c.want...)
			}
		}},
		{"a limit counts rows with wanted cells", func(f *fixture) {
			f.put("a q 1", "b p 2", "c q 3", "d q 4", "e q 5")
			q := []store.Column{{Family: "f", Qualifier: []byte("q")}}
			f.wantRows("limit 1", f.scan(store.Scan{Limit: 1}), "a f:q=1")
			f.wantRows("limit 2 of q", f.scan(store.Scan{Limit: 2, Columns: q}), "a f:q=1", "c f:q=3")
			f.wantRows("limit 2 over ranges", f.scan(store.Scan{Limit: 2, Ranges: parseRanges("a,b;d,")}), "a f:q=1", "d f:q=4")
			f.wantRows("limit of filtered", f.scan(store.Scan{Limit: 1, Filter: keep("[ce]", "c", "e")}), "c f:q=3")
			f.wantRows("limit beyond", f.scan(store.Scan{Limit: 9, Columns: q}), "a f:q=1", "c f:q=3", "d f:q=4", "e f:q=5")
		}},
		{"a filter keeps rows", func(f *fixture) {
			var want []string
			f.apply(func(b *store.Batch) {
				for i := range 500 {
					row := []byte(fmt.Sprintf("%03d\x00", i))
					for q := range 1 + i%7 {
						b.Put("data", row, "f", []byte{'a' + byte(q)}, 0, []byte("1"))
					}
				}
			})
			for _, r := range f.scan(store.Scan{}) {
				if r.Key[2] == '7' {
					want = append(want, FormatRows([]store.Row{r})...)
				}
			}
			if len(want) != 50 {
				f.Fatalf("%d rows end in 7, want 50", len(want))
			}
			filter := store.RowFilter{
				Match:  func(row []byte) bool { return len(row) == 4 && row[2] == '7' },
				Regexp: `[0-9]{2}7\x00`,
			}
			f.wantRows("filter", f.scan(store.Scan{Filter: filter}), want...)
			filter.Regexp = "..7." // Match decides
			f.wantRows("coarse filter", f.scan(store.Scan{Filter: filter, Ranges: parseRanges("100,200")}), want[10:20]...)
			f.wantRows("no row", f.scan(store.Scan{Filter: keep("x")}))
		}},
		{"a filter over bytes that are no text", func(f *fixture) {
			f.put("\x00\x80\n\xff q 1", "\x00\x80\n\xfe q 2", "\x00\x81\n\xff q 3")
			f.wantRows("scan", f.scan(store.Scan{Filter: keep(`\x00\x80.\xff`, "\x00\x80\n\xff")}), `\x00\x80\n\xff f:q=1`)
		}},
		{"rows larger than a block are whole", func(f *fixture) {
			const cells = 5000
			f.apply(func(b *store.Batch) {
				for i := range cells {
					b.Put("data", []byte("wide"), "f", []byte(fmt.Sprintf("%05d", i)), 0, []byte("0123456789abcdef"))
				}
				b.Put("data", []byte("wide\x00"), "f", []byte("q"), 0, []byte("1"))
			})
			rows := f.scan(store.Scan{})
			if len(rows) != 2 || len(rows[0].Cells) != cells || len(rows[1].Cells) != 1 {
				f.Fatalf("got %d rows, want 2, of %d cells and 1", len(rows), cells)
			}
			for i, c := range rows[0].Cells {
				if string(c.Qualifier) != fmt.Sprintf("%05d", i) {
					f.Fatalf("cell %d is %q", i, c.Qualifier)
				}
			}
		}},
	}
}

// keep is a filter for the given rows, which the regular expression matches.
func keep(regexp string, rows ...string) store.RowFilter {
	set := map[string]bool{}
	for _, r := range rows {
		set[r] = true
	}
	return store.RowFilter{Match: func(row []byte) bool { return set[string(row)] }, Regexp: regexp}
}

// parseRanges reads "start,stop;start,stop".
func parseRanges(s string) []store.Range {
	var ranges []store.Range
	var r store.Range
	at := &r.Start
	for i := range len(s) {
		switch s[i] {
		case ',':
			at = &r.Stop
		case ';':
			ranges, r = append(ranges, r), store.Range{}
			at = &r.Start
		default:
			*at = append(*at, s[i])
		}
	}
	return append(ranges, r)
}
