package cellio_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/cellio"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

func tableNames(t testing.TB, st store.Store) (names []string) {
	t.Helper()
	tables, err := st.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return names
}

func dumpAll(t testing.TB, st store.Store) string {
	t.Helper()
	var out bytes.Buffer
	if err := cellio.Dump(t.Context(), st, tableNames(t, st), &out, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// inStoreOrder sorts lines by table, row, family and qualifier.
func inStoreOrder(t testing.TB, text []byte) string {
	t.Helper()
	type address struct{ Table, Row, Family, Qualifier string }
	lines := strings.SplitAfter(string(text), "\n")
	parse := func(line string) (a address) {
		if line == "" {
			return address{} // after the last line
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	slices.SortStableFunc(lines, func(x, y string) int {
		a, b := parse(x), parse(y)
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Row, b.Row), cmp.Compare(a.Family, b.Family),
			cmp.Compare(a.Qualifier, b.Qualifier))
	})
	return strings.Join(lines, "")
}

// What HBase held is what is dumped after it was loaded, to the byte.
func TestDump_OfLoadedCellsIsTheirLinesInOrder(t *testing.T) {
	files, err := filepath.Glob("../../testdata/opentsdb/*/cells.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden cells: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		st, want := storetest.NewMem(), inStoreOrder(t, text)
		for range 2 { // a load may be repeated
			told := 0
			n, err := cellio.Load(t.Context(), st, bytes.NewReader(text), func(cells int) { told = cells })
			if lines := bytes.Count(text, []byte("\n")); err != nil || n != lines || told != lines {
				t.Errorf("%s: loaded %d cells, %d told, %v, want %d", file, n, told, err, lines)
			}
			if got := dumpAll(t, st); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
			}
		}
	}
}

func TestLoad_IntoAnEmbeddedStoreMakesTheTables(t *testing.T) {
	db, err := pebble.Open(pebble.Config{Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	text, err := os.ReadFile("../../testdata/opentsdb/meta-full/cells.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cellio.Load(t.Context(), db, bytes.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := dumpAll(t, db), inStoreOrder(t, text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	tables, err := db.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range tables {
		got = append(got, fmt.Sprint(table.Name, table.Families))
	}
	if want := []string{"meta[name]", "tsdb[t]", "uid[id name]"}; !slices.Equal(got, want) {
		t.Errorf("tables are %q, want %q", got, want)
	}
}

const good = `{"table":"t","row":"00ff","family":"f","qualifier":"","timestamp":1,"value":""}` + "\n"

func TestLoad_RefusesLinesThatAreNoCells(t *testing.T) {
	for _, c := range []struct{ line, text string }{
		{``, "line 2 is no cell: unexpected end"},
		{`{}`, "line 2 is no cell: no table"},
		{`null`, "line 2 is no cell: no table"},
		{`[]`, "line 2 is no cell"},
		{`{"table":"t"`, "line 2 is no cell: unexpected end"},
		{good[:len(good)-1] + "x", "line 2 is no cell: invalid character 'x'"},
		{`{"row":"00","family":"f","qualifier":"00","timestamp":1,"value":"00"}`, "no table"},
		{`{"table":"t","family":"f","qualifier":"00","timestamp":1,"value":"00"}`, "no row"},
		{`{"table":"t","row":"","family":"f","qualifier":"00","timestamp":1,"value":"00"}`, "no row"},
		{`{"table":"t","row":"00","qualifier":"00","timestamp":1,"value":"00"}`, "no family"},
		{`{"table":"t","row":"00","family":"f","timestamp":1,"value":"00"}`, "no qualifier"},
		{`{"table":"t","row":"00","family":"f","qualifier":null,"timestamp":1,"value":"00"}`, "no qualifier"},
		{`{"table":"t","row":"00","family":"f","qualifier":"00","value":"00"}`, "no timestamp"},
		{`{"table":"t","row":"00","family":"f","qualifier":"00","timestamp":0,"value":"00"}`, "no timestamp"},
		{`{"table":"t","row":"00","family":"f","qualifier":"00","timestamp":-1,"value":"00"}`, "timestamp -1 is before 1970"},
		{`{"table":"t","row":"00","family":"f","qualifier":"00","timestamp":1}`, "no value"},
		{`{"table":"t","row":"0","family":"f","qualifier":"00","timestamp":1,"value":"00"}`, "odd length hex string"},
		{`{"table":"t","row":"0g","family":"f","qualifier":"00","timestamp":1,"value":"00"}`, "invalid byte"},
		{`{"table":"t","row":"00","family":"f","qualifier":"00","timestamp":1.5,"value":"00"}`, "line 2 is no cell"},
		{`{"table":"t","row":"00","family":"f","qualifier":"00","timestamp":1e30,"value":"00"}`, "line 2 is no cell"},
		{strings.Replace(good[:len(good)-1], "00ff", strings.Repeat("00", store.MaxRow+1), 1),
			"line 2 is no cell: invalid request to the store: row key of 32768 bytes"},
	} {
		st := storetest.NewMem()
		n, err := cellio.Load(t.Context(), st, strings.NewReader(good+c.line+"\n"+good), nil)
		if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "line 2") || n != 0 {
			t.Errorf("%.120s: got %d cells, %v, want an error that says %q", c.line, n, err, c.text)
		}
		if names := tableNames(t, st); names != nil {
			t.Errorf("%.120s: the tables %q were made", c.line, names)
		}
	}
}

func TestLoad_TheLastLineNeedsNoEnd(t *testing.T) {
	st := storetest.NewMem()
	if n, err := cellio.Load(t.Context(), st, strings.NewReader(strings.TrimSpace(good)), nil); n != 1 || err != nil {
		t.Errorf("got %d cells, %v", n, err)
	}
	if got := dumpAll(t, st); got != good {
		t.Errorf("got %s, want %s", got, good)
	}
	if n, err := cellio.Load(t.Context(), st, strings.NewReader(""), nil); n != 0 || err != nil {
		t.Errorf("of nothing: got %d cells, %v", n, err)
	}
}

func TestLoad_RefusesATableThatLacksTheFamily(t *testing.T) {
	st := storetest.NewMem()
	if err := st.CreateTable(t.Context(), store.Table{Name: "t", Families: []string{"e", "g"}}); err != nil {
		t.Fatal(err)
	}
	_, err := cellio.Load(t.Context(), st, strings.NewReader(good), nil)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `table "t" exists and has no family "f"`) {
		t.Errorf("got %v", err)
	}
	more := strings.ReplaceAll(good, `"f"`, `"g"`) // a table may have more families than the cells
	if n, err := cellio.Load(t.Context(), st, strings.NewReader(more), nil); n != 1 || err != nil {
		t.Errorf("got %d cells, %v", n, err)
	}
}

// manyCells are lines of more than one batch.
func manyCells() string {
	var b strings.Builder
	value := strings.Repeat("00", 100_000)
	for i := range 12 {
		fmt.Fprintf(&b, `{"table":"t","row":"%04x","family":"f","qualifier":"","timestamp":1,"value":"%s"}`+"\n", i, value)
	}
	return b.String()
}

func TestLoad_MayBeCutShortAnywhereAndRepeated(t *testing.T) {
	text := manyCells()
	for _, when := range []storetest.When{storetest.Before, storetest.After} {
		for call := 1; ; call++ {
			mem := storetest.NewMem()
			st := storetest.Faulty(mem, storetest.Fault{Call: call, When: when})
			n, err := cellio.Load(t.Context(), st, strings.NewReader(text), nil)
			if st.Calls(storetest.Any) < call {
				if n != 12 || err != nil || call < 5 {
					t.Errorf("Load ended after %d calls: %d cells, %v", call-1, n, err)
				}
				break
			}
			if want := max(0, call-3) * 11; !errors.Is(err, store.ErrUnavailable) || n != want {
				t.Errorf("call %d failing: got %d cells, %v, want %d and ErrUnavailable", call, n, err, want)
			}
			if n, err := cellio.Load(t.Context(), mem, strings.NewReader(text), nil); n != 12 || err != nil {
				t.Errorf("after call %d had failed: %d cells, %v", call, n, err)
			}
			if dumpAll(t, mem) != text {
				t.Errorf("after call %d had failed the cells differ", call)
			}
		}
	}
}

// brokenPipe fails after some bytes.
type brokenPipe int

func (w *brokenPipe) Write(p []byte) (int, error) {
	if *w -= brokenPipe(len(p)); *w < 0 {
		return 0, os.ErrClosed
	}
	return len(p), nil
}

func TestDump_ErrorsComeBack(t *testing.T) {
	mem := storetest.NewMem()
	if _, err := cellio.Load(t.Context(), mem, strings.NewReader(manyCells()), nil); err != nil {
		t.Fatal(err)
	}
	for _, room := range []brokenPipe{0, 1_000_000} {
		if err := cellio.Dump(t.Context(), mem, []string{"t"}, &room, nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("into a broken pipe: got %v", err)
		}
	}
	st := storetest.Faulty(mem, storetest.Fault{Verb: storetest.Scan, When: storetest.Midway, Rows: 3})
	err := cellio.Dump(t.Context(), st, []string{"t"}, &bytes.Buffer{}, nil)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `dump table "t" after 3 cells`) {
		t.Errorf("of a store that fails: got %v", err)
	}
	if err := cellio.Dump(t.Context(), mem, []string{"nosuch"}, &bytes.Buffer{}, nil); !errors.Is(err, store.ErrNoTable) {
		t.Errorf("of no table: got %v", err)
	}
}

// FuzzLoad: no input panics, and what was taken is dumped and loaded again alike.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(good + good))
	f.Add([]byte(`{"table":"<t>","row":"00","family":"é","qualifier":"0F","timestamp":9223372036854775807,"value":"0a"}`))
	f.Add([]byte("{}\nnull\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ctx := context.Background()
		first, second := storetest.NewMem(), storetest.NewMem()
		if _, err := cellio.Load(ctx, first, bytes.NewReader(text), nil); err != nil {
			return
		}
		dump := dumpAll(t, first)
		if _, err := cellio.Load(ctx, second, strings.NewReader(dump), nil); err != nil {
			t.Fatalf("the dump is refused: %v\n%s", err, dump)
		}
		if again := dumpAll(t, second); again != dump {
			t.Fatalf("got\n%s\nwant\n%s", again, dump)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	text, err := os.ReadFile("../../testdata/opentsdb/plain/cells.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	st := storetest.NewMem()
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := cellio.Load(b.Context(), st, bytes.NewReader(text), nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDump(b *testing.B) {
	st := storetest.NewMem()
	text, err := os.ReadFile("../../testdata/opentsdb/plain/cells.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := cellio.Load(b.Context(), st, bytes.NewReader(text), nil); err != nil {
		b.Fatal(err)
	}
	names := tableNames(b, st)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		if err := cellio.Dump(b.Context(), st, names, &out, nil); err != nil {
			b.Fatal(err)
		}
	}
}
